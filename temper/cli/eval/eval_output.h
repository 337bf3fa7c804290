// The judged completions of `temper eval` as a rollouts file (rl/rollout/rollout_lines.h): what
// `data pairs --rollouts` and rl.replay read.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "temper/cli/parts/output.h"
#include "temper/rewards/reward.h"
#include "temper/rl/episodes/episode_sampler.h"

namespace temper::cli {

class EvalOutput {
 public:
  // `path`: the file. `input`: that of the rows. Throws ConfigError where it cannot be written, and
  // for "-": standard output has the summary.
  EvalOutput(const std::string& path, const std::string& input);

  // A completion of the row; `sample`: which of the verdicts is its own. In the order of the rows.
  void add(int64_t row, size_t sample, rl::SampledEpisode completion);

  // One verdict of each sample, of the rewards `names`; what was dropped has none and is left out.
  void finish(const std::vector<std::string>& names,
              std::span<const std::optional<rewards::RewardResult>> verdicts);

 private:
  struct Completion {
    int64_t row;
    size_t sample;
    rl::SampledEpisode sampled;
  };
  OutputFile file_;
  std::vector<Completion> completions_;
};

}  // namespace temper::cli
