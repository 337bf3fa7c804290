// An algorithm of one's own, with rollouts, checkpoints, ranks and metrics as every other has them:
//   own_loss grpo run.yaml rl.algorithm=reinforce rl.beta=0
#include <numeric>
#include <vector>

#include "temper/cli/verbs.h"
#include "temper/rl/algorithm.h"

using temper::RlSection;

// REINFORCE (Williams, "Simple statistical gradient-following algorithms", 1992) with the group's
// mean reward as the baseline.
std::vector<double> above_mean(const RlSection&, std::span<const double> rewards) {
  const double mean =
      std::accumulate(rewards.begin(), rewards.end(), 0.0) / static_cast<double>(rewards.size());
  std::vector<double> advantages;
  for (const double reward : rewards) advantages.push_back(reward - mean);
  return advantages;
}

// -A log π at every token; rl.loss_aggregation says what a token counts. Nothing is clipped.
temper::rl::Loss reinforce(const RlSection& rl, const temper::rl::CompletionBatch& b) {
  temper::rl::Loss loss;
  loss.terms.push_back({"policy", -1, b.logp_M.mul(b.advantage_M)});
  if (rl.beta > 0)
    loss.terms.push_back({"kl", rl.beta, temper::rl::kl(rl.kl_estimator, b.logp_M, b.ref_logp_M)});
  loss.clipped_M = b.advantage_M.new_zeros(b.advantage_M.sizes());
  return loss;
}

int main(int argc, char** argv) {
  temper::rl::register_algorithm({"reinforce", above_mean, reinforce,
                                  "-A log π, with the group's mean reward as the baseline"});
  return temper::cli::run({argv + 1, argv + argc});
}
