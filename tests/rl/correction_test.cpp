// Importance weights of another sampler, by their definitions.
#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <cmath>

#include "temper/rl/importance_correction.h"

using namespace temper;

namespace {

const std::vector<float> kOld{-1.0F, -2.0F, -0.5F, -3.0F, -1.0F},
    kSampler{-1.0F, -3.0F, -2.5F, -2.0F, -3.0F};
// exp(old - sampler): 1, e, e², 1/e, e².
const std::vector<int64_t> kCompletions{0, 2, 5};

std::vector<double> values(const at::Tensor& x) {
  const at::Tensor y = x.to(at::kDouble).contiguous();
  return {y.const_data_ptr<double>(), y.const_data_ptr<double>() + y.numel()};
}

void check_close(const at::Tensor& found, const std::vector<double>& expected) {
  const std::vector<double> x = values(found);
  REQUIRE(x.size() == expected.size());
  for (size_t i = 0; i < x.size(); ++i) CHECK(x[i] == doctest::Approx(expected[i]).epsilon(1e-6));
}

}  // namespace

TEST_CASE("importance weights are truncated at the cap, or masked outside their bounds") {
  const at::Tensor old = at::tensor(kOld), sampler = at::tensor(kSampler);
  const double e = std::exp(1.0);
  rl::ImportanceCorrection truncated;
  check_close(truncated.weight(old, sampler, kCompletions), {1, 2, 2, 1 / e, 2});
  check_close(truncated.outside(old, sampler, kCompletions), {0, 1, 1, 0, 1});
  rl::ImportanceCorrection masked{.mask = true};
  check_close(masked.weight(old, sampler, kCompletions), {1, e, 0, 0, 0});
  check_close(masked.outside(old, sampler, kCompletions), {0, 0, 1, 1, 1});
}

TEST_CASE("a completion's importance weight is the product of its tokens', truncated or masked") {
  const at::Tensor old = at::tensor(kOld), sampler = at::tensor(kSampler);
  const double e = std::exp(1.0);  // the completions' weights: e and e³
  rl::ImportanceCorrection truncated{.sequence = true, .cap = 3};
  check_close(truncated.weight(old, sampler, kCompletions), {e, e, 3, 3, 3});
  check_close(truncated.outside(old, sampler, kCompletions), {0, 0, 1, 1, 1});
  rl::ImportanceCorrection masked{.mask = true, .sequence = true, .cap = 3};
  check_close(masked.weight(old, sampler, kCompletions), {e, e, 0, 0, 0});
  check_close(masked.outside(old, sampler, kCompletions), {0, 0, 1, 1, 1});
  masked.cap = 2;  // has no lower bound
  check_close(masked.weight(sampler, old, kCompletions),
              {1 / e, 1 / e, 1 / (e * e * e), 1 / (e * e * e), 1 / (e * e * e)});
}

TEST_CASE("the mismatch is the sampler's KL to the trainer") {
  train::Loss loss;
  rl::add_mismatch(loss, {}, at::tensor(kOld), at::tensor(kSampler), kCompletions);
  double kl = 0;
  for (size_t i = 0; i < kOld.size(); ++i) {
    const double d = static_cast<double>(kOld[i]) - kSampler[i];
    kl += std::exp(d) - d - 1;
  }
  REQUIRE(loss.means.size() == 2);
  CHECK(loss.means[0].name == "mismatch_kl");
  CHECK(loss.means[0].sum == doctest::Approx(kl).epsilon(1e-6));
  CHECK(loss.means[0].count == 5);
  CHECK(loss.means[1].name == "mismatch_fraction");
  CHECK(loss.means[1].sum == 3);
}
