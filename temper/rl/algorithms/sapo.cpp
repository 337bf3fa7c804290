// SAPO (Gao et al., "Soft Adaptive Policy Optimization", arXiv 2511.20347): in place of clipping, a
// smooth gate on the importance ratio, which lets go sooner where the advantage is negative.
#include <ATen/ATen.h>

#include "temper/rl/algorithms/group_keys.h"

namespace temper::rl {
namespace {

class Sapo final : public GroupAlgorithm {
 public:
  void fields(Fields& f) override {
    GroupAlgorithm::fields(f);
    f.add("sapo_temperature_pos", positive_,
          "sharpness of the gate where the advantage is positive", above(0));
    f.add("sapo_temperature_neg", negative_, "sharpness of the gate elsewhere", above(0));
  }
  std::vector<std::string> unused_keys() const override {
    return {"epsilon_low", "epsilon_high", "dual_clip"};
  }
  // Section 3: 1/G Σ_i 1/|o_i| Σ_t f(ρ) Â with f(ρ) = 4/τ σ(τ (ρ - 1)), τ by the sign of Â. No KL
  // term.
  train::Loss loss(const TokenBatch& b) const override {
    return keys.loss_of(train::soft_gate(keys.ratio(b), b.advantage_M, positive_, negative_),
                        at::zeros_like(b.advantage_M), b, keys.beta);
  }

 private:
  double positive_ = 1, negative_ = 1.05;
};

const Registered<MakeAlgorithm> kSapo(&algorithms,
                                      {"sapo", &make_algorithm<Sapo>,
                                       "a smooth gate on the importance ratio in place of clipping",
                                       "Gao et al., arXiv 2511.20347, section 3"});

}  // namespace
}  // namespace temper::rl
