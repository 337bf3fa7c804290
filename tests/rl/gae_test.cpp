// Advantages of an actor and a critic.
#include "temper/rl/algorithms/gae.h"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "temper/base/error.h"
#include "temper/base/random.h"

using namespace temper;

namespace {

std::vector<double> drawn(uint64_t seed, size_t count) {
  const RandomStream stream(seed, RandomPurpose::kInit, 0);
  std::vector<double> out;
  for (size_t i = 0; i < count; ++i) out.push_back(4 * stream.uniform(i) - 2);
  return out;
}

}  // namespace

TEST_CASE("the recursion is equation 16's sum") {
  const std::vector<double> reward = drawn(1, 9), value = drawn(2, 9);
  for (const double gamma : {1.0, 0.9, 0.0})
    for (const double lambda : {1.0, 0.95, 0.3, 0.0}) {
      CAPTURE(gamma);
      CAPTURE(lambda);
      const std::vector<double> advantage =
          rl::generalized_advantages(reward, value, gamma, lambda);
      for (size_t t = 0; t < reward.size(); ++t) {
        double sum = 0;
        for (size_t l = 0; t + l < reward.size(); ++l) {
          const double after = t + l + 1 < value.size() ? value[t + l + 1] : 0;
          sum += std::pow(gamma * lambda, static_cast<double>(l)) *
                 (reward[t + l] + gamma * after - value[t + l]);
        }
        CHECK(advantage[t] == doctest::Approx(sum).epsilon(1e-12));
      }
    }
}

TEST_CASE("without discount and bias the advantage is the return less the value") {
  const std::vector<double> reward{0, 0, 0, 3}, value{0.5, -1, 2, 2.5};
  CHECK(rl::generalized_advantages(reward, value, 1, 1) == std::vector<double>{2.5, 4, 1, 0.5});
  // lambda 0: the error of one step.
  CHECK(rl::generalized_advantages(reward, value, 1, 0) == std::vector<double>{-1.5, 3, 0.5, 0.5});
  CHECK(rl::generalized_advantages({}, {}, 1, 1).empty());
  CHECK_THROWS_AS(rl::generalized_advantages(reward, {}, 1, 1), Error);
}

TEST_CASE("whitened advantages have mean 0 and deviation 1") {
  std::vector<float> a{1, 2, 4, 9};
  rl::whiten(a);
  double sum = 0, squares = 0;
  for (const float x : a) sum += x, squares += static_cast<double>(x) * x;
  CHECK(sum == doctest::Approx(0).scale(1));
  CHECK(squares / 3 == doctest::Approx(1));
  std::vector<float> equal(7, 0.1F), one{3};
  rl::whiten(equal);
  rl::whiten(one);
  for (const float x : equal) CHECK(std::abs(x) < 1e-3F);
  CHECK(one[0] == 0);
}

TEST_CASE("explained variance is 1 of what was known, 0 of a constant") {
  const std::vector<double> target{1, 2, 4}, constant(3, 7.0), shifted{3, 4, 6};
  CHECK(rl::explained_variance(target, target) == 1);
  CHECK(rl::explained_variance(shifted, target) == doctest::Approx(1));  // a bias is no variance
  CHECK(rl::explained_variance(constant, target) == doctest::Approx(0));
  CHECK(rl::explained_variance(target, constant) == 0);
  CHECK(rl::explained_variance(target, std::vector<double>{1, 1 + 1e-9, 1}) == 0);
}
