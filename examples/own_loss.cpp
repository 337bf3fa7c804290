// An algorithm of one's own, with rollouts, checkpoints, ranks and metrics as every other has them:
//   own_loss grpo run.yaml rl.algorithm=reinforce rl.baseline_share=0.5
#include <memory>
#include <numeric>
#include <vector>

#include "temper/cli/verbs.h"
#include "temper/rl/algorithms/algorithm.h"

namespace rl = temper::rl;

// REINFORCE (Williams, "Simple statistical gradient-following algorithms", 1992) with a share of
// the group's mean reward as the baseline.
class Reinforce : public rl::Algorithm {
 public:
  // Keys of its own in the config's section `rl`.
  void fields(temper::Fields& f) override {
    f.add("baseline_share", share_, "the baseline: this share of the group's mean reward",
          temper::between(0, 1));
  }

  // The credit of each completion's tokens: what its reward is above the baseline.
  void assign(rl::EpisodeGroup& group) override {
    const std::vector<double> rewards = group.shaped_rewards();
    const double mean =
        std::accumulate(rewards.begin(), rewards.end(), 0.0) / static_cast<double>(rewards.size());
    for (size_t i = 0; i < rewards.size(); ++i)
      group.set_advantage(group.episodes[i], rewards[i] - share_ * mean);
  }

  // Every completion counts alike, and so does every token in it.
  std::vector<double> token_weights(std::span<const int64_t> length_C) const override {
    return rl::aggregate(rl::Aggregation::kSeqMeanTokenMean, length_C, limits_.max_new_tokens);
  }

  // -A log π at every token.
  temper::train::Loss loss(const rl::TokenBatch& b) const override {
    temper::train::Loss loss;
    loss.terms.push_back(rl::policy_term(b.logp_M.mul(b.advantage_M).neg(), b));
    return loss;
  }

 private:
  double share_ = 1;
};

int main(int argc, char** argv) {
  rl::algorithms().add(
      {"reinforce",
       []() -> std::unique_ptr<rl::Algorithm> { return std::make_unique<Reinforce>(); },
       "-A log π, with the group's mean reward as the baseline"});
  return temper::cli::run({argv + 1, argv + argc});
}
