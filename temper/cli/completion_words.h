// What can be typed, from the tables that the program itself reads, for shell completion.
#pragma once

#include <string>
#include <vector>

#include "temper/cli/options.h"

namespace temper::cli {

using Words = std::vector<std::string>;

// A key of the training verbs' config.
struct ConfigKey {
  std::string name, help;  // "rl.algorithm"
  Words choices;           // empty: its value is no choice
};
std::vector<ConfigKey> config_keys();

// Flags of any verb, with choices that only this program knows (names of rewards).
std::vector<Flag> flags_to_complete(const Verb& verb);

// Words that follow a verb and are neither flags nor keys.
Words words_of(const Verb& verb);

}  // namespace temper::cli
