// Rows that the student samples itself: prompts are drawn, completed by the rollout engine, and
// trained on as rows of SFT whose completion is supervised.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "temper/data/loader.h"
#include "temper/distill/config.h"
#include "temper/generate/engine.h"
#include "temper/train/roles.h"

namespace temper::distill {

// Whether the run's row of this number is trained as it stands: an even share of them is.
bool is_off_policy(double fraction, int64_t number);

// Reads prompts, without a supervised token, and off-policy rows as SFT does.
data::Loader<data::SftRow>::Read prompt_or_row_reader(const DistillConfig& config,
                                                      const train::Policy& policy);

class SampledRows {
 public:
  SampledRows(const DistillConfig& config, train::Policy& policy, dist::Group& group);

  // Completes the prompts among the rows, which are the run's from number `first` on: the same on
  // all ranks, each of which samples its share.
  void complete(std::vector<data::SftRow>& rows, int64_t first);
  // This rank's passes of a set of prompts, completed; fewer where `stop` says so.
  std::vector<train::ForwardPass> evaluation_passes(const data::RowSet& file, size_t set,
                                                    const std::function<bool()>& stop);
  // Adds metrics of the last complete().
  void describe(MetricsRow& row) const;

 private:
  struct Completion {
    std::vector<int32_t> tokens;
    bool stopped = false;
  };
  // Samples completions of prompts; both maps are by the key of the prompt's random numbers.
  std::map<int64_t, Completion> sample(const std::map<int64_t, std::vector<int32_t>>& prompts,
                                       const std::function<bool()>& stop = {});
  std::map<int64_t, Completion> gather(std::map<int64_t, Completion> mine);

  const DistillConfig& config_;
  train::Policy& policy_;
  dist::Group& group_;
  generate::Engine engine_;
  double seconds_ = 0, completions_ = 0, tokens_ = 0, truncated_ = 0;
};

}  // namespace temper::distill
