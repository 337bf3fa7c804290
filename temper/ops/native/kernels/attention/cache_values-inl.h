// Values as a cache of keys and values stores them. Plain arithmetic on bits, which every SIMD
// target compiles to vectors of its own: the same bits everywhere. Included once for each target.
#if defined(TEMPER_CACHE_VALUES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TEMPER_CACHE_VALUES_INL_H
#undef TEMPER_CACHE_VALUES_INL_H
#else
#define TEMPER_CACHE_VALUES_INL_H
#endif

#include <algorithm>
#include <bit>

#include "temper/ops/native/kernels/attention/cache_dtype.h"
#include "temper/ops/native/kernels/gemm.h"
#include "temper/ops/native/kernels/loops.h"

HWY_BEFORE_NAMESPACE();
namespace temper::kernels::HWY_NAMESPACE {

constexpr uint32_t kInfinity = 0x7f800000u;          // bits of float32's infinity
constexpr uint32_t kSmallestNormal16 = 0x38800000u;  // 2^-14; below it values are n * 2^-24
constexpr uint32_t kLargest16 = 0x477fe000u;         // 65504

// float32 values in [0.5, 1) are 2^-24 apart, as float16's subnormals are: adding 0.5 rounds a
// smaller value to one of those, to nearest, ties to even.
inline uint32_t bits_of_half_plus(uint32_t magnitude) {
  return std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f);
}

inline float rounded(float x, Float16Bits) {
  const uint32_t bits = std::bit_cast<uint32_t>(x), magnitude = bits & 0x7fffffffu;
  const uint32_t normal = (magnitude + 0xfffu + (magnitude >> 13 & 1)) & ~0x1fffu;
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(bits_of_half_plus(magnitude)) - 0.5f);
  const uint32_t finite = magnitude < kSmallestNormal16 ? subnormal : std::min(normal, kLargest16);
  return std::bit_cast<float>((bits ^ magnitude) | (magnitude < kInfinity ? finite : magnitude));
}
inline float rounded(float x, BFloat16Bits) { return to_float(to_bfloat16(x)); }

// Exact for values that have been rounded.
inline void store(float x, Float16Bits& to) {
  const uint32_t bits = std::bit_cast<uint32_t>(x), magnitude = bits & 0x7fffffffu;
  const uint32_t normal = (magnitude >> 13) - (112u << 10);
  const uint32_t subnormal = bits_of_half_plus(magnitude) - std::bit_cast<uint32_t>(0.5f);
  const uint32_t finite = magnitude < kSmallestNormal16 ? subnormal : normal;
  const uint32_t other = magnitude > kInfinity ? 0x7e00u : 0x7c00u;
  to.bits =
      static_cast<uint16_t>((bits >> 16 & 0x8000u) | (magnitude < kInfinity ? finite : other));
}
inline void store(float x, BFloat16Bits& to) {
  to = static_cast<BFloat16Bits>(std::bit_cast<uint32_t>(x) >> 16);
}
inline void store(float x, float& to) { to = x; }

template <class B>
void store_values(const float* from, int64_t count, B* to) {
  for (int64_t i = 0; i < count; ++i) store(from[i], to[i]);
}

template <class B>
void round_values(int64_t count, float* x) {
  constexpr int64_t kRange = 8192, kParallel = 65536;
  for_each_index((count + kRange - 1) / kRange, count > kParallel, [=](int64_t range) {
    const int64_t end = std::min(count, (range + 1) * kRange);
    for (int64_t i = range * kRange; i < end; ++i) x[i] = rounded(x[i], B{});
  });
}

// Calls body(T{}), T being the storage type of dtype: float, Float16Bits or BFloat16Bits.
template <class Body>
void with_cached_type(CacheDtype dtype, Body body) {
  if (dtype == CacheDtype::kFloat32) body(float{});
  if (dtype == CacheDtype::kFloat16) body(Float16Bits{});
  if (dtype == CacheDtype::kBFloat16) body(BFloat16Bits{});
}

void RoundTo(CacheDtype dtype, int64_t count, float* x) {
  if (dtype == CacheDtype::kFloat16) round_values<Float16Bits>(count, x);
  if (dtype == CacheDtype::kBFloat16) round_values<BFloat16Bits>(count, x);
}

}  // namespace temper::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
