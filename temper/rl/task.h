// Reinforcement learning as a task of the trainer: a rollout batch from a source, reference and old
// log-probabilities and a critic's values, rewards turned into credit by the algorithm, then
// minibatches x iterations updates. It asks neither which algorithm runs nor where its episodes
// come from.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "temper/rl/batch.h"
#include "temper/rl/config.h"
#include "temper/rl/importance_correction.h"
#include "temper/rl/observer.h"
#include "temper/rl/reference.h"
#include "temper/rl/rollout/rollout_files.h"
#include "temper/rl/rollout/source.h"
#include "temper/rl/sampler_check.h"
#include "temper/train/trainer.h"

namespace temper::rl {

class RlTask : public train::Task {
 public:
  // `output_dir`: where sampled batches leave their rollouts; empty: nowhere.
  RlTask(const RlConfig& config, train::Roles& roles, dist::Group& group, RolloutSource& source,
         train::Messages& messages, const std::string& output_dir = {});

  void begin(int64_t steps_made) override;
  int64_t planned_steps() const override;
  std::string work() const override;
  std::optional<train::StepPlan> next(int64_t step) override;
  train::Loss loss(const train::ForwardPass& pass) override;
  void before_update(int64_t step) override;
  void describe_step(MetricsRow& row) override;
  std::string rollout_file() const override { return update_ == 0 ? rollout_file_ : ""; }
  bool evaluate(MetricsRow& row, const std::function<bool()>& stop) override;
  train::TaskState state() const override;
  void restore(const train::TaskState& state, const std::string& where) override;
  std::vector<MetricInfo> metrics() const override;
  std::vector<std::pair<std::string, std::string>> summary() const override {
    return source_.summary();
  }
  std::vector<Report::Table> tables() const override { return observer_.samples(); }

 private:
  bool next_batch(int64_t step);
  void score_batch();
  void find_least_entropy(std::span<const size_t> trained);
  // Whether this update is the first of a batch that the present weights sampled.
  bool compares() const { return update_ == 0 && fresh_; }
  // Whether this update is the first of a batch from a file that is trained on as if the present
  // weights had sampled it.
  bool compares_file() const {
    return update_ == 0 && !source_.samples() && rl_.on_mismatch == RlSection::OnMismatch::kStop;
  }
  // Whether this update is the first of a batch that servers sampled, at whatever staleness.
  bool compares_servers() const {
    return update_ == 0 && source_.samples() && config_.rollout.server.used() &&
           rl_.on_mismatch == RlSection::OnMismatch::kCorrect;
  }
  void check_file(int64_t step) const;
  void check_servers(int64_t step);
  void note_staleness(int64_t policy_version);
  void check_fresh(int64_t step) const;
  int64_t updates_of_batch() const;
  std::pair<size_t, size_t> episodes_of_update() const;
  // Those of the update that train: rl.mask_truncated leaves some out.
  std::vector<size_t> trained_episodes() const;

  const RlConfig& config_;
  const RlSection& rl_;
  Algorithm& algorithm_;
  train::Roles& roles_;
  dist::Group& group_;
  RolloutSource& source_;
  train::Messages& messages_;
  std::optional<MovingReference> moving_reference_;  // set once the reference is known
  Observer observer_;
  std::optional<RolloutFiles> files_;  // none: this rank writes none
  std::string rollout_file_;           // of the batch; empty: it left none

  TrainingBatch batch_;
  BatchStatistics about_;  // statistics of the batch
  double rollout_seconds_ = 0, reward_seconds_ = 0, train_started_ = 0;
  int64_t update_ = 0;          // update of the batch that next() planned
  std::vector<double> weight_;  // [episodes] weight of a token of each one in this update
  double update_tokens_ = 0;    // tokens that the update trains
  float least_entropy_ = 0;  // of the update's tokens with a policy loss (rl.top_entropy_fraction)
  bool fresh_ = false;       // the policy that the batch began with sampled it
  double staleness_ = 0;     // mean over completions: updates between sampling and training
  int64_t oldest_ = 0;       // the same, of the version that is furthest behind
  const ImportanceCorrection correction_;
  SamplerCheck sampler_check_;  // compares the tokens of this update
  int64_t wrong_batches_ = 0;   // consecutive ones that are not the policy's
  Json before_batch_;           // the algorithm's state, before it gave the batch credit
  Json done_;                   // the state after the last step
  // the source's batches in flight after the last step
  std::function<void(train::TaskState&)> in_flight_;
};

}  // namespace temper::rl
