// The sections `rl` and `rollout` of reinforcement learning's config.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "temper/generate/config.h"
#include "temper/generate/remote/config.h"
#include "temper/rl/algorithms/algorithm.h"
#include "temper/rl/difficulty.h"
#include "temper/rl/importance_correction.h"

namespace temper::rl {

// The section `rl`: rollout batches and how often they are trained on, then the algorithm's keys.
struct RlSection {
  enum class OnMismatch { kStop, kCorrect };
  enum class Correction { kTruncate, kMask, kSequenceTruncate, kSequenceMask };

  // Begins with GRPO.
  RlSection() { set_algorithm("grpo"); }
  // Another algorithm, with its paper's defaults. `where` begins the message of a ConfigError for a
  // name that is not in the table.
  void set_algorithm(const std::string& name, const std::string& where = "rl.algorithm");

  int64_t group_size = 8;
  int64_t prompts_per_rollout = 8;
  int64_t minibatches = 1;
  int64_t iterations = 1;
  std::optional<std::string> replay;
  std::string save_rollouts = "all";  // RolloutRetention::parse
  bool compress_rollouts = false;
  OnMismatch on_mismatch = OnMismatch::kStop;
  Correction importance_correction = Correction::kTruncate;
  double importance_cap = 2;
  std::array<double, 2> importance_bounds = {0.5, 5};
  bool mask_truncated = false;
  double top_entropy_fraction = 1;
  std::optional<std::string> reference;
  int64_t reference_update_every = 0;
  double reference_mix = 1;
  int64_t max_staleness = 0;
  DifficultySection difficulty;
  std::shared_ptr<Algorithm> algorithm;  // its class sets the keys of its file
  // Another of its name, with its paper's defaults.
  std::unique_ptr<Algorithm> untouched_algorithm() const;

  // The algorithm's keys whose value is not its paper's default, as in "rl.beta is 0.04, not 0",
  // joined by commas; empty: none. For a resolved config.
  std::string overridden_defaults(const RolloutLimits& limits) const;
  const std::string& algorithm_name() const { return name_; }

  void fields(Fields& f);
  int64_t updates_per_batch() const { return minibatches * iterations; }
  ImportanceCorrection correction() const;

 private:
  std::string name_;
};

// The section `rollout` of a run that may have its completions sampled elsewhere, or meanwhile.
struct RlRolloutSection : generate::RolloutSection {
  enum class Update { kFinish, kContinue };
  generate::ServerSection server;
  std::optional<int64_t> threads;
  Update update = Update::kFinish;
  std::optional<bool> replay_sampling_mask;
  void fields(Fields& f);
  // Beside RolloutSection::options(), GenerationOptions::record_kept: what `replay_sampling_mask`
  // says, or where it can be.
  generate::GenerationOptions options(int64_t seed) const;
};

}  // namespace temper::rl
