// Flags of the working verbs, on CLI11.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "temper/cli/verbs.h"
#include "temper/generate/engine.h"

namespace temper::cli {

// Parses the arguments; false when help was asked for and printed. Throws ConfigError.
bool parse_flags(CLI::App& app, const Arguments& arguments);

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
