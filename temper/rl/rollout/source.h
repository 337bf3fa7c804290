// Sources of groups of episodes: sampled when they are needed (sync_source.h), sampled while the
// policy trains on earlier ones (async_source.h), or read from a file (replay_source.h). The
// training loop does not depend on the kind of source, only on what its methods report.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "temper/base/json.h"
#include "temper/metrics/row.h"
#include "temper/rl/algorithms/algorithm.h"
#include "temper/rl/episode.h"
#include "temper/train/evaluation.h"
#include "temper/train/task.h"

namespace temper::rl {

struct RolloutBatch {
  std::vector<EpisodeGroup> groups;
  double rollout_seconds = 0, reward_seconds = 0;

  int64_t num_episodes() const;
};

class RolloutSource {
 public:
  virtual ~RolloutSource() = default;

  // How many batches there are in a run that `train.max_steps` does not bound.
  virtual int64_t planned_batches() const = 0;
  // The next batch, the same on all ranks; its groups are neither shaped nor compared. Empty: the
  // data has ended. `policy_version` is the number of updates made so far.
  virtual RolloutBatch next(int64_t policy_version) = 0;
  // Whether the recorded log-probabilities are bit for bit those of the current policy: the trainer
  // then compares its own with them and computes no old ones.
  virtual bool exact() const = 0;
  // Whether the batches are newly sampled, so that they are written to rollouts/.
  virtual bool samples() const = 0;
  // For asynchronous sources: called before each step's passes, with the number of updates still to
  // be made on the current batch, this step's included.
  virtual void look_ahead(int64_t /*policy_version*/, int64_t /*updates_left*/) {}
  // Adds its metrics of the last batch.
  virtual void describe(MetricsRow& /*row*/) const {}
  // Evaluates the policy on the prompts of data.eval; false: there are none.
  virtual bool evaluate(train::EvaluationSums& /*sums*/, const std::function<bool()>& /*stop*/) {
    return false;
  }

  // The state after the last batch: restore() continues from there.
  virtual Json state() const = 0;
  virtual void restore(const Json& state, const std::string& where) = 0;
  // For checkpoints: batches in flight, which are being sampled for later updates. The returned
  // function is called when a checkpoint is written, and adds them as they were at the time of this
  // call. Empty: there are none.
  virtual std::function<void(train::TaskState&)> in_flight() const { return {}; }
  virtual void restore_in_flight(const train::TaskState& /*state*/, const std::string& /*where*/) {}
  virtual std::vector<std::pair<std::string, std::string>> summary() const { return {}; }
};

}  // namespace temper::rl
