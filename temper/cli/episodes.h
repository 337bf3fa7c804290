// `temper generate` and `temper eval` with an environment: the loop of `temper grpo`.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "temper/cli/options.h"
#include "temper/data/prompt_row.h"
#include "temper/env/config.h"
#include "temper/generate/engine.h"
#include "temper/rl/episode_sampler.h"

namespace temper::cli {

struct EnvironmentFlags {
  std::string environment, tools;  // files; empty: none
  void add_to(CLI::App& app);
  bool any() const { return !environment.empty() || !tools.empty(); }
  // What the files say: a config with the section `environment`, or that section alone; a list of
  // tools. Throws ConfigError.
  env::EnvironmentSection section() const;
  // Throws ConfigError for beams, which have no turns.
  void check_sampled(const BatchFlags& batch) const;
};

// What episodes are sampled of and with.
struct EpisodeInputs {
  models::CausalLM& model;
  const ModelFlags& model_flags;
  const EnvironmentFlags& environment;
  const SamplingFlags& sampling;
  const BatchFlags& batch;
  std::shared_ptr<const Tokenizer> tokenizer;
  const std::vector<data::PromptRow>& rows;
  const std::vector<int>& adapters;  // of the rows
};

struct EpisodeCounts {
  int64_t new_tokens = 0;  // that were sampled
  int64_t failures = 0;    // of the environment
};

// Samples an episode of each prompt and sample; `done` gets those of one prompt, in order of prompt
// and sample. Warns of failures of the environment. Throws Interrupted.
EpisodeCounts sample_episodes(
    const EpisodeInputs& inputs,
    const std::function<void(size_t row, std::vector<rl::SampledEpisode>)>& done);

// The same as rows of output, which rl.replay reads where they have a `reward`, the environment's.
// Gives the number of tokens that were sampled.
int64_t write_episodes(const EpisodeInputs& inputs, class OutputFile& out);

}  // namespace temper::cli
