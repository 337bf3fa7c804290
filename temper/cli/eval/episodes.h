// `temper generate` and `temper eval` with an environment: the loop of `temper grpo`.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "temper/cli/parts/options.h"
#include "temper/data/rows/prompt_row.h"
#include "temper/env/config.h"
#include "temper/generate/engine.h"
#include "temper/rl/episodes/episode_sampler.h"

namespace temper::cli {

struct EnvironmentFlags {
  std::string environment, tools;  // files; empty: none
  void add_to(Flags& f);
  bool any() const { return !environment.empty() || !tools.empty(); }
  // What the files say: a config with the section `environment`, or that section alone; a list of
  // tools. Throws ConfigError.
  env::EnvironmentSection section() const;
  // Throws ConfigError if --beams is given with an environment: beam search has no turns.
  void check_no_beams(const BatchFlags& batch) const;
};

// Prompts, model and options of sample_episodes; references must outlive the call.
struct EpisodeInputs {
  models::CausalLM& model;
  const ModelFlags& model_flags;
  const env::EnvironmentSection& environment;
  const SamplingFlags& sampling;
  const BatchFlags& batch;
  std::shared_ptr<const Tokenizer> tokenizer;
  const std::vector<data::PromptRow>& rows;
  const std::vector<int>& adapters;  // by row: nn::Context::adapter, 0 for none
};

struct EpisodeCounts {
  int64_t new_tokens = 0;     // that were sampled
  int64_t failures = 0;       // of the environment and its tools
  std::string first_failure;  // on one line; empty: there was none
};

// Samples batch.num_samples episodes of each row. `done` gets all episodes of one row, dropped ones
// included, rows in ascending order. Warns of failures on standard error. Throws Interrupted, and
// RunError where the environment fails and on_failure is stop.
EpisodeCounts sample_episodes(
    const EpisodeInputs& inputs,
    const std::function<void(size_t row, std::vector<rl::SampledEpisode>)>& done);

// Writes them as rows, which rl.replay reads where they have a `reward`, the environment's; dropped
// episodes are left out. Gives the number of sampled tokens. Throws as sample_episodes.
int64_t write_episodes(const EpisodeInputs& inputs, class OutputFile& out);

}  // namespace temper::cli
