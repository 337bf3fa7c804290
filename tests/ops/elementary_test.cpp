// The float functions of elementary-inl.h over every 257th bit pattern, against long double.
#include "temper/ops/native/kernels/targets.h"
// clang-format off
#include <hwy/highway.h>
#include "temper/ops/native/kernels/elementary-inl.h"
// clang-format on

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace {
namespace elementary = temper::kernels::HWY_NAMESPACE;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// |got - want| in units of the last place of a float of want's size.
double ulps(float got, long double want) {
  const float nearest = static_cast<float>(want);
  if (std::isnan(want) || std::isnan(got))
    return std::isnan(want) && std::isnan(got) ? 0 : INFINITY;
  if (std::isinf(nearest) || std::isinf(got)) return got == nearest ? 0 : INFINITY;
  const int exponent = want == 0 ? -149 : std::max(std::ilogb(want) - 23, -149);
  return static_cast<double>(std::abs(got - want) / std::ldexp(1.0L, exponent));
}

template <class Function, class Exact>
double worst_ulps(Function function, Exact exact) {
  double worst = 0;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 257) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    worst = std::max(worst, ulps(function(x), exact(static_cast<long double>(x))));
  }
  return worst;
}
}  // namespace

TEST_CASE("exp and tanh are within two units in the last place of every float") {
  CHECK(worst_ulps([](float x) { return elementary::exp_of(x); },
                   [](long double x) { return std::exp(x); }) < 1.1);
  CHECK(worst_ulps([](float x) { return elementary::tanh_of(x); },
                   [](long double x) { return std::tanh(x); }) < 1.6);
}

TEST_CASE("the sigmoid is within three units in the last place, until exp(-x) overflows") {
  // Below -88 the true value is a subnormal or near one, and 0 is as good.
  const auto exact = [](long double x) { return 1 / (1 + std::exp(-x)); };
  CHECK(worst_ulps([](float x) { return elementary::sigmoid_of(std::max(x, -88.0f)); },
                   [&](long double x) { return exact(std::max(x, -88.0L)); }) < 2.5);
  CHECK(elementary::sigmoid_of(-90.0f) == doctest::Approx(0));
}

TEST_CASE("the normal distribution is right to 14 digits, and so is its bell") {
  const auto distribution = [](long double x) { return std::erfc(-x * std::sqrt(0.5L)) / 2; };
  double worst = 0, worst_bell = 0;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 4099) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (!(std::abs(x) < 37)) continue;  // beyond, the bell is subnormal
    const elementary::Normal normal = elementary::normal_of(static_cast<double>(x));
    const long double exact = distribution(x), bell = std::exp(-0.5L * x * x);
    worst = std::max(worst, static_cast<double>(std::abs(normal.distribution / exact - 1)));
    worst_bell = std::max(worst_bell, static_cast<double>(std::abs(normal.bell / bell - 1)));
  }
  CHECK(worst < 1e-14);
  CHECK(worst_bell < 1e-15);
  CHECK(worst > 0);
  CHECK(elementary::normal_of(0.0).distribution == doctest::Approx(0.5).epsilon(1e-15));
  CHECK(elementary::normal_of(-60.0).distribution == 0);
  CHECK(elementary::normal_of(static_cast<double>(kInfinity)).distribution == 1);
  CHECK(elementary::normal_of(static_cast<double>(-kInfinity)).distribution == 0);
  CHECK(std::isnan(elementary::normal_of(static_cast<double>(kNaN)).distribution));
}

TEST_CASE("limits, subnormal results and NaN") {
  CHECK(elementary::exp_of(0.0f) == 1);
  CHECK(elementary::exp_of(kInfinity) == kInfinity);
  CHECK(elementary::exp_of(88.8f) == kInfinity);
  CHECK(elementary::exp_of(88.7f) < kInfinity);
  CHECK(elementary::exp_of(-kInfinity) == 0);
  CHECK(elementary::exp_of(-103.5f) > 0);
  CHECK(elementary::exp_of(-104.0f) == 0);
  CHECK(elementary::tanh_of(kInfinity) == 1);
  CHECK(elementary::tanh_of(-kInfinity) == -1);
  CHECK(elementary::sigmoid_of(0.0f) == 0.5f);
  CHECK(elementary::sigmoid_of(-kInfinity) == 0);
  CHECK(elementary::sigmoid_of(kInfinity) == 1);
  CHECK(std::isnan(elementary::exp_of(kNaN)));
  CHECK(std::isnan(elementary::exp_of(-kNaN)));
  CHECK(std::isnan(elementary::tanh_of(kNaN)));
  CHECK(std::isnan(elementary::sigmoid_of(kNaN)));
}
