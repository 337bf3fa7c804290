// A config file may serve several training verbs: each passes over the sections that only others
// have.
#pragma once

#include <string>
#include <vector>

#include "temper/base/config/yaml.h"
#include "temper/cli/parts/options.h"
#include "temper/train/config.h"

namespace temper::cli {

// The sections of other training verbs that `verb` has not.
std::vector<std::string> other_sections(const std::string& verb);

// Throws ConfigError for a key of those sections that no training verb knows.
void check_other_sections(const YamlNode& written, const std::string& verb);

// train::read_run_config for a verb of the command line.
template <class Config>
void read_verb_config(Config& config, const Arguments& arguments, const std::string& verb) {
  check_other_sections(read_config_arguments(arguments, Fields::of(config)), verb);
  read_run_config(config, arguments, verb, other_sections(verb));
}

}  // namespace temper::cli
