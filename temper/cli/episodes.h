// `temper generate` with an environment: the loop of `temper grpo`, for inspection.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "temper/cli/options.h"
#include "temper/data/prompt_row.h"
#include "temper/env/config.h"
#include "temper/generate/engine.h"

namespace temper::cli {

struct EnvironmentFlags {
  std::string environment, tools;  // files; empty: none
  void add_to(CLI::App& app);
  bool any() const { return !environment.empty() || !tools.empty(); }
  // What the files say: a config with the section `environment`, or that section alone; a list of
  // tools. Throws ConfigError.
  env::EnvironmentSection section() const;
};

// Samples an episode of each prompt and sample, in order of (index, sample), as rows of output that
// rl.replay reads where they have a `reward`, which is the environment's. Gives the number of
// tokens that were sampled. Throws Interrupted.
int64_t write_episodes(models::CausalLM& model, const ModelFlags& model_flags,
                       const EnvironmentFlags& flags, const SamplingFlags& sampling,
                       const BatchFlags& batch, std::shared_ptr<const Tokenizer> tokenizer,
                       const std::vector<data::PromptRow>& rows, const std::vector<int>& adapters,
                       class OutputFile& out);

}  // namespace temper::cli
