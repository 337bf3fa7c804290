// Groups from a rollouts file, in its order (rl.replay).
#pragma once

#include <string>

#include "temper/data/read/row_file.h"
#include "temper/rl/config.h"
#include "temper/rl/rollout/rollout_lines.h"
#include "temper/rl/rollout/source.h"
#include "temper/train/messages.h"

namespace temper::rl {

class ReplaySource : public RolloutSource {
 public:
  // A batch is the file's next prompts_per_rollout * group_size rows, of which the branches of an
  // agent's episode (the same `group` and `sample`) count as one. Groups are told apart by `group`,
  // and may have lost rows (on_failure: drop). Throws DataError for a file without rows; of a model
  // that sees images, for the first row with one that is missing or broken: each is decoded once.
  // Throws ConfigError for an image that a reference or critic of the config does not see. Warns
  // where a group is divided between two batches, or by the file's end. format: its directory
  // becomes the file's.
  ReplaySource(const RlConfig& config, LineFormat format, train::Messages& messages);

  int64_t planned_batches() const override { return planned_; }
  RolloutBatch next(int64_t policy_version) override;
  bool exact() const override { return false; }  // the policy may be another
  bool samples() const override { return false; }
  Json state() const override;
  void restore(const Json& state, const std::string& where) override;

 private:
  void check_images() const;
  int64_t count_completions() const;
  void warn_of_short_group(const std::vector<EpisodeGroup>& groups) const;

  const RlConfig& config_;
  train::Messages& messages_;
  data::RowFile file_;
  LineFormat format_;
  int64_t completions_ /* of a batch */, planned_ = 0, position_ = 0;
};

}  // namespace temper::rl
