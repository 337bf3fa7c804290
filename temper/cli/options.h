// Flags of the working verbs, on CLI11.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "temper/cli/verbs.h"
#include "temper/generate/engine.h"

namespace temper::cli {

// Parses the arguments; false when help was asked for and printed. Throws ConfigError.
bool parse_flags(CLI::App& app, const Arguments& arguments);

// Checks of a flag's value that say in a line what was found and what was expected.
CLI::Validator whole_number();  // of 64 bits, without a sign
CLI::Validator at_least_one();
CLI::Validator non_negative();
CLI::Validator above_zero();
CLI::Validator any_number();  // no NaN

// A flag as --help shows it.
struct Flag {
  std::string name, help;  // "--device"
  std::vector<std::string> choices;
  bool takes_value;
};
// The flags that a verb hands to parse_flags; it does nothing of its work.
std::vector<Flag> flags_of(const Verb& verb);

// --model and --adapter, as several verbs take them.
struct ModelFlags {
  std::string model, adapter, device = "auto", dtype;
  void add_to(CLI::App& app);
};

// How completions are sampled: generate's flags, which eval takes too.
struct SamplingFlags {
  generate::EngineOptions options;
  int64_t num_samples = 1;
  void add_to(CLI::App& app);
};

}  // namespace temper::cli
