#include "temper/rl/weights/rank_policy.h"

#include <algorithm>

#include "temper/base/error.h"
#include "temper/metrics/trace.h"
#include "temper/workers/trained_weights.h"

namespace temper::rl {

RankPolicy::RankPolicy(const RlConfig& config, train::Policy& policy, const dist::Mesh& mesh,
                       workers::RoleRanks& role_ranks, train::Messages& messages)
    : policy_(policy),
      role_ranks_(role_ranks),
      messages_(messages),
      ahead_(config.rl.max_staleness > 0),
      whole_(mesh.model->size() == 1),
      split_(mesh.layer_parts() != config.roles.tensor),
      options_(config.rollout.engine_options()),
      snapshots_(ahead_ && whole_ ? std::make_unique<SnapshotPolicy>(config, policy) : nullptr),
      pool_(std::make_shared<generate::remote::ServerPool>(role_ranks.sampling(),
                                                           workers::rank_protocol())),
      engine_(pool_, policy.tokenizer, role_ranks.connections(),
              whole_ ? [this] { return fall_back(); }
                     : std::function<generate::CompletionSource*()>()) {
  role_ranks_.watch(pool_, role_ranks_.roles().rollout);
  if (!role_ranks_.leads()) return;
  sender_ = std::make_shared<workers::WeightsSender>(
      role_ranks_.weighted(), [&role_ranks](size_t place) { role_ranks.drop(place); });
  role_ranks_.on_gone(
      [alive = std::weak_ptr(sender_), ranks = role_ranks_.roles().rollout](int64_t rank) {
        const auto place = std::find(ranks.begin(), ranks.end(), rank);
        const auto sender = alive.lock();
        if (sender && place != ranks.end())
          sender->leave_out(static_cast<size_t>(place - ranks.begin()));
      });
}

RankPolicy::~RankPolicy() = default;

void RankPolicy::keep(int64_t version) {
  if (version == kept_last_) return;
  kept_last_ = version;
  const trace::Span span("weights for the ranks that sample");
  {
    const std::lock_guard lock(mutex_);
    if (alone_) return snapshots_ ? snapshots_->keep(version) : void();
  }
  const auto bytes =
      workers::trained_weights(*policy_.model, sender_ != nullptr || snapshots_ != nullptr);
  if (sender_) sender_->send(version, bytes);
  const std::lock_guard lock(mutex_);
  if (alone_)
    snapshots_->keep(version);
  else if (snapshots_)
    kept_[version] = bytes;
}

void RankPolicy::use(int64_t version) {
  if (!ahead_) keep(version);
  role_ranks_.warn(messages_);
  const std::lock_guard lock(mutex_);
  used_ = version;
  kept_.erase(kept_.begin(), kept_.lower_bound(version));
  engine_.set_version(version);
  if (alone_ && snapshots_) snapshots_->use(version);
}

void RankPolicy::share_processors(bool training) {
  // Also while other ranks sample: where the last of them is lost, the snapshots begin to sample
  // meanwhile.
  if (snapshots_) snapshots_->share_processors(training);
}

generate::CompletionSource* RankPolicy::fall_back() {
  role_ranks_.warn(messages_);
  messages_.warn_once("nobody samples",
                      "the last of the ranks of roles.rollout is gone; those "
                      "that train sample from here on");
  const std::lock_guard lock(mutex_);
  alone_ = true;
  if (!snapshots_) {
    own_ = std::make_unique<generate::Engine>(*policy_.model, options_, policy_.tokenizer);
    return own_.get();
  }
  for (const auto& [version, bytes] : kept_) snapshots_->keep(version, bytes);
  kept_.clear();
  snapshots_->use(used_);
  return &snapshots_->completions();
}

}  // namespace temper::rl
