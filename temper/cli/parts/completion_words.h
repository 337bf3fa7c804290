// What can be typed, from the tables that the program itself reads, for shell completion.
#pragma once

#include <string>
#include <vector>

#include "temper/base/config/config.h"
#include "temper/cli/verbs.h"

namespace temper::cli {

using Words = std::vector<std::string>;

// The keys of a config, for Verb::keys.
std::vector<ConfigKey> config_keys(const std::vector<Field>& fields);
template <class Config>
std::vector<ConfigKey> keys_of() {
  Config config;
  return config_keys(Fields::of(config));
}

// Flags of any verb and of its tools.
std::vector<Flag> flags_to_complete(const Verb& verb);

// Words that follow a verb and are neither flags nor keys.
Words words_of(const Verb& verb);

}  // namespace temper::cli
