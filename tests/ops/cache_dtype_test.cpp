// Rounding to the number types of a cache of keys and values.
#include "temper/ops/native/kernels/attention/cache_dtype.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "tests/ops/kernels.h"

using namespace temper::kernels;

namespace {

std::vector<float> rounded(CacheDtype dtype, std::vector<float> x) {
  round_to(dtype, static_cast<int64_t>(x.size()), x.data());
  return x;
}

// Of every exponent, values between two neighbours of both types and their ties.
std::vector<float> all_sizes() {
  std::vector<float> x{0.0f,      -0.0f,    65504.0f, 65519.996f,
                       -65503.0f, 0x1p-24f, 0x1p-25f, 0x1.8p-25f};
  Draws draws(7);
  for (uint32_t exponent = 1; exponent < 255; ++exponent)
    for (int i = 0; i < 200; ++i) {
      const uint32_t fraction = static_cast<uint32_t>(draws.below(1 << 23));
      // Half of them with few bits: ties.
      const uint32_t kept = i % 2 == 0 ? fraction : fraction & ~0xfffu;
      x.push_back(
          std::bit_cast<float>(static_cast<uint32_t>(i % 3 == 0) << 31 | exponent << 23 | kept));
    }
  return x;
}

}  // namespace

TEST_CASE("every float16 is widened as LibTorch widens it") {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float mine = to_float(Float16Bits{static_cast<uint16_t>(bits)});
    const float theirs = c10::Half(static_cast<uint16_t>(bits), c10::Half::from_bits());
    if (std::isnan(theirs))
      CHECK(std::isnan(mine));
    else
      CHECK(std::bit_cast<uint32_t>(mine) == std::bit_cast<uint32_t>(theirs));
  }
}

TEST_CASE("values become the nearest of float16 and bfloat16, as LibTorch rounds them") {
  const std::vector<float> x = all_sizes();
  std::vector<float> half, brain;
  for (const float value : x) {
    const float widened = c10::Half(value);
    half.push_back(std::isinf(widened) ? std::copysign(65504.0f, value) : widened);
    brain.push_back(c10::BFloat16(value));
  }
  for_each_target([&] {
    CHECK(same_bits(rounded(CacheDtype::kFloat16, x), half));
    CHECK(same_bits(rounded(CacheDtype::kBFloat16, x), brain));
    CHECK(same_bits(rounded(CacheDtype::kFloat32, x), x));
  });
}

TEST_CASE("what is no finite number stays what it is") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for_each_target([&] {
    for (const CacheDtype dtype : {CacheDtype::kFloat16, CacheDtype::kBFloat16}) {
      const std::vector<float> x =
          rounded(dtype, {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()});
      CHECK(x[0] == kInfinity);
      CHECK(x[1] == -kInfinity);
      CHECK(std::isnan(x[2]));
    }
  });
}
