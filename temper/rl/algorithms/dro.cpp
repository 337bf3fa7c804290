// DRO (Richemond et al., "Offline regularised reinforcement learning for large language models
// alignment", arXiv 2405.19107): the policy gradient of log-probabilities, without importance
// ratios, held near the policy that the batch began with by the square of the log-ratio.
#include <ATen/ATen.h>

#include "temper/rl/algorithms/group_keys.h"

namespace temper::rl {
namespace {

// -(A log π_θ - β/2 (log π_θ - log π_old)²) at each token. A = r - V(x), section 3.2; the value is
// the mean reward of the group instead of a learned one.
class Dro final : public GroupAlgorithm {
 public:
  Dro() { keys.scale_rewards = false; }
  void fields(Fields& f) override {
    GroupAlgorithm::fields(f);
    f.add("dro_beta", dro_beta_,
          "coefficient of half the squared log-ratio of the policy to that at the start of the "
          "rollout batch; it acts from a batch's second update on",
          at_least(0));
  }
  std::vector<std::string> unused_keys() const override {
    return {"importance", "epsilon_low", "epsilon_high", "dual_clip"};
  }
  train::Loss loss(const TokenBatch& b) const override {
    return keys.loss_of(train::direct_reward(b.logp_M, b.old_logp_M, b.advantage_M, dro_beta_),
                        at::zeros_like(b.advantage_M), b, keys.beta);
  }

 private:
  double dro_beta_ = 0.05;  // the Tinker API's
};

const Registered<MakeAlgorithm> kDro(
    &algorithms,
    {"dro", &make_algorithm<Dro>,
     "policy gradient with a quadratic penalty of the log-ratio to the policy at the batch's start",
     "Richemond et al., arXiv 2405.19107, section 3"});

}  // namespace
}  // namespace temper::rl
