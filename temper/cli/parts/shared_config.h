// What training verbs' configs share with others: a config file may serve several verbs, of which
// each passes over the sections that only others have, and may be written as for another trainer.
#pragma once

#include <string>
#include <vector>

#include "temper/base/config/yaml.h"
#include "temper/cli/parts/options.h"
#include "temper/train/config.h"

namespace temper::cli {

// The sections of other training verbs that `verb` has not, and keys that only others have in a
// section that it has, too: "rollout.server".
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
