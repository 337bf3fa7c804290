// REINFORCE++ (Hu et al., arXiv 2501.03262): PPO without a critic. The KL to the reference model is
// subtracted from the reward of each token, and advantages are normalized over the whole batch
// instead of among the completions of a prompt, of which one is enough.
#include "temper/rl/algorithms/algorithm.h"
#include "temper/rl/algorithms/gae.h"
#include "temper/rl/algorithms/policy_keys.h"

namespace temper::rl {
namespace {

class ReinforcePlusPlus final : public Algorithm {
 public:
  // The coefficient of the KL is that of the authors' program (OpenRLHF).
  ReinforcePlusPlus() {
    keys_.beta = 0.01;
    keys_.kl_estimator = train::KlEstimator::kK1;
    keys_.loss_aggregation = Aggregation::kTokenMean;
  }
  void fields(Fields& f) override {
    keys_.fields(f,
                 "coefficient of the KL to the reference model, which is subtracted from the "
                 "reward of each token; 0: no reference model is loaded");
  }
  double dual_clip() const override { return keys_.dual_clip; }
  Needs needs() const override {
    return {.reference = keys_.beta > 0, .min_group_size = 1, .old_logp = keys_.beta > 0};
  }
  bool keep(const EpisodeGroup&) const override { return true; }

  // A_t = r(x, y) - β Σ_{i≥t} KL_i, KL_i = log π_old(y_i) - log π_ref(y_i).
  void assign(EpisodeGroup& group) override {
    for (const Episode& episode : group.episodes) {
      double to_go = episode.shaped();
      for (auto s = episode.path.rbegin(); s != episode.path.rend(); ++s) {
        Segment& segment = group.segments[static_cast<size_t>(*s)];
        if (!segment.sampled) continue;
        const std::vector<double> kl_T = keys_.token_kl(segment);
        segment.advantage.resize(kl_T.size());
        for (size_t t = kl_T.size(); t-- > 0;) {
          to_go -= keys_.beta * kl_T[t];
          segment.advantage[t] = static_cast<float>(to_go);
        }
      }
    }
  }
  // (A - mean) / std over all tokens of the batch.
  void assign_batch(std::span<EpisodeGroup> groups) override {
    Algorithm::assign_batch(groups);
    whiten_advantages(groups);
  }

  std::vector<double> token_weights(std::span<const int64_t> length_C) const override {
    return aggregate(keys_.loss_aggregation, length_C, limits_.max_new_tokens);
  }
  // min(ρ A, clip(ρ, 1 - ε, 1 + ε) A); the KL is part of the advantages.
  train::Loss loss(const TokenBatch& b) const override {
    return keys_.clipped_loss(train::importance_ratio(b.logp_M, b.old_logp_M), b, /*kl_weight=*/0);
  }
  void describe(std::span<const Segment* const> update, MetricsRow& row) const override {
    if (keys_.beta > 0) row.set("kl", keys_.mean_token_kl(update));
  }

 private:
  PolicyKeys keys_;
};

const Registered<MakeAlgorithm> kReinforcePlusPlus(
    &algorithms, {"reinforce_plus_plus", &make_algorithm<ReinforcePlusPlus>,
                  "PPO without a critic: the KL is part of the rewards, advantages are normalized "
                  "over the batch",
                  "Hu et al., arXiv 2501.03262, section 3"});

}  // namespace
}  // namespace temper::rl
