// DRO's loss of a token: its gradient in float64, and the Tinker API's loss of that name.
#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <cmath>

#include "temper/rl/algorithms/algorithm.h"
#include "temper/rl/algorithms/terms.h"
#include "temper/tinker/losses.h"

using namespace temper;

namespace {

const std::vector<double> kDroLogp{-0.5, -1.25, -0.125, -3.0}, kDroOld{-0.75, -1.0, -0.125, -1.0},
    kDroAdvantage{2, -1.5, 0, 0.5};

at::Tensor dro_doubles(const std::vector<double>& values) {
  return at::tensor(values, at::kDouble);
}

rl::TokenBatch dro_batch(const at::Tensor& logp) {
  rl::TokenBatch b;
  b.logp_M = logp;
  b.old_logp_M = dro_doubles(kDroOld);
  b.advantage_M = dro_doubles(kDroAdvantage);
  b.weight_M = at::ones({4}, at::kDouble);
  return b;
}

}  // namespace

TEST_CASE("the gradient of dro's loss is its derivative") {
  at::Tensor logp = dro_doubles(kDroLogp).requires_grad_();
  rl::direct_reward(dro_batch(logp), 0.7).sum().backward();
  constexpr double kStep = 1e-5;
  for (size_t i = 0; i < kDroLogp.size(); ++i) {
    const auto at = [&](double by) {
      std::vector<double> moved = kDroLogp;
      moved[i] += by;
      return rl::direct_reward(dro_batch(dro_doubles(moved)), 0.7).sum().item<double>();
    };
    const double slope = (at(kStep) - at(-kStep)) / (2 * kStep);
    CHECK(logp.grad()[static_cast<int64_t>(i)].item<double>() ==
          doctest::Approx(slope).epsilon(1e-8));
  }
}

TEST_CASE("dro is the Tinker API's dro, its default included") {
  tinker::Targets targets;
  for (size_t i = 0; i < kDroLogp.size(); ++i) {
    targets.token.push_back(1);
    targets.old_logprob.push_back(static_cast<float>(kDroOld[i]));
    targets.advantage.push_back(static_cast<float>(kDroAdvantage[i]));
  }
  const std::vector<float> logprobs(kDroLogp.begin(), kDroLogp.end());
  const tinker::LossValue expected =
      tinker::loss_of(tinker::read_loss("dro", {}), targets, logprobs);
  const auto algorithm = rl::algorithms().find("dro")();
  at::Tensor logp = dro_doubles(kDroLogp).to(at::kFloat).requires_grad_();
  rl::TokenBatch b = dro_batch(logp);
  for (at::Tensor* x : {&b.old_logp_M, &b.advantage_M, &b.weight_M}) *x = x->to(at::kFloat);
  const at::Tensor loss = algorithm->loss(b).terms.at(0).value.sum();
  loss.backward();
  CHECK(loss.item<double>() == doctest::Approx(expected.loss).epsilon(1e-6));
  for (size_t i = 0; i < kDroLogp.size(); ++i)
    CHECK(logp.grad()[static_cast<int64_t>(i)].item<double>() ==
          doctest::Approx(double{expected.gradient[i]}).epsilon(1e-6));
}
