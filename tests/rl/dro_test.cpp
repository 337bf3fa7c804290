// DRO's loss of a token: its gradient in float64.
#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <vector>

#include "temper/train/policy_terms.h"

using namespace temper;

namespace {

const std::vector<double> kDroLogp{-0.5, -1.25, -0.125, -3.0}, kDroOld{-0.75, -1.0, -0.125, -1.0},
    kDroAdvantage{2, -1.5, 0, 0.5};

at::Tensor dro_doubles(const std::vector<double>& values) {
  return at::tensor(values, at::kDouble);
}

at::Tensor dro_loss(const at::Tensor& logp) {
  return train::direct_reward(logp, dro_doubles(kDroOld), dro_doubles(kDroAdvantage), 0.7).sum();
}

}  // namespace

TEST_CASE("the gradient of dro's loss is its derivative") {
  at::Tensor logp = dro_doubles(kDroLogp).requires_grad_();
  dro_loss(logp).backward();
  constexpr double kStep = 1e-5;
  for (size_t i = 0; i < kDroLogp.size(); ++i) {
    const auto at = [&](double by) {
      std::vector<double> moved = kDroLogp;
      moved[i] += by;
      return dro_loss(dro_doubles(moved)).item<double>();
    };
    const double slope = (at(kStep) - at(-kStep)) / (2 * kStep);
    CHECK(logp.grad()[static_cast<int64_t>(i)].item<double>() ==
          doctest::Approx(slope).epsilon(1e-8));
  }
}
