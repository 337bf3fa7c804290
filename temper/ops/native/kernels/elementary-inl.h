// Elementary functions as plain arithmetic: written once, for a scalar T, so that the compiler's
// vectors (each SIMD target compiles this file again), the scalar code and every batch width give
// the same bits. float: at most 2 units in the last place; double: the C library's.
#if defined(TEMPER_ELEMENTARY_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TEMPER_ELEMENTARY_INL_H
#undef TEMPER_ELEMENTARY_INL_H
#else
#define TEMPER_ELEMENTARY_INL_H
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace temper::kernels::HWY_NAMESPACE {

inline double exp_of(double x) { return std::exp(x); }
inline double tanh_of(double x) { return std::tanh(x); }
inline double sqrt_of(double x) { return std::sqrt(x); }
inline float sqrt_of(float x) { return __builtin_sqrtf(x); }

// Cody and Waite's reduction x = n ln2 + r, a polynomial in r (Cephes), and 2^n applied in two
// halves so that results near the ends of the range are right.
HWY_INLINE float exp_of(float x) {
  float clamped = x > 89.0f ? 89.0f : x;
  clamped = clamped < -104.0f ? -104.0f : clamped;
  constexpr float kRound =
      12582912.0f;  // 1.5 * 2^23: adding and subtracting it rounds to the nearest integer
  const float n = (clamped * 1.44269504088896341f + kRound) - kRound;
  float r = std::fma(n, -0.693145751953125f, clamped);
  r = std::fma(n, -1.42860677e-6f, r);
  float p = 1.9875691500e-4f;
  p = std::fma(p, r, 1.3981999507e-3f);
  p = std::fma(p, r, 8.3334519073e-3f);
  p = std::fma(p, r, 4.1665795894e-2f);
  p = std::fma(p, r, 1.6666665459e-1f);
  p = std::fma(p, r, 5.0000001201e-1f);
  const float y = std::fma(p, r * r, r) + 1.0f;
  // The integer is read out of the bits of n + 2^23's neighbour: no conversion that a NaN could
  // upset.
  const int32_t i = std::bit_cast<int32_t>(n + kRound) - std::bit_cast<int32_t>(kRound);
  const int32_t half = i >> 1;
  const float low = std::bit_cast<float>((half + 127) << 23),
              high = std::bit_cast<float>((i - half + 127) << 23);
  return y * low * high;
}

// Cephes: a polynomial near 0, (1 - e) / (1 + e) with e = exp(-2|x|) elsewhere.
HWY_INLINE float tanh_of(float x) {
  const float a = x < 0 ? -x : x;
  const float z = x * x;
  float p = -5.70498872745e-3f;
  p = std::fma(p, z, 2.06390887954e-2f);
  p = std::fma(p, z, -5.37397155531e-2f);
  p = std::fma(p, z, 1.33314422036e-1f);
  p = std::fma(p, z, -3.33332819422e-1f);
  const float near = std::fma(p * z, x, x);
  const float e = exp_of(-2.0f * a);
  const float far = (1.0f - e) / (1.0f + e);
  const float signed_far = x < 0 ? -far : far;
  return a < 0.625f ? near : signed_far;
}

template <class T>
inline T sigmoid_of(T x) {
  return T(1) / (T(1) + exp_of(-x));
}

// Sixteen partial sums by (index mod 16), each in ascending order, joined by a fixed tree: the
// definition of every sum over a row here.
template <class T>
struct Partials {
  T sum[16] = {};
  T total() const {
    T s[8];
    for (int i = 0; i < 8; ++i) s[i] = sum[i] + sum[i + 8];
    for (int i = 0; i < 4; ++i) s[i] += s[i + 4];
    s[0] += s[2];
    s[1] += s[3];
    return s[0] + s[1];
  }
};

// Σ f(i) for i in [begin, begin + count), partial by (i mod 16).
template <class T, class Term>
inline T sum16(int64_t begin, int64_t count, Term term) {
  Partials<T> partials;
  int64_t i = begin;
  const int64_t end = begin + count;
  for (; i < end && i % 16 != 0; ++i) partials.sum[i % 16] = term(i, partials.sum[i % 16]);
  for (; i + 16 <= end; i += 16) {
#pragma GCC unroll 16
    for (int64_t l = 0; l < 16; ++l) partials.sum[l] = term(i + l, partials.sum[l]);
  }
  for (; i < end; ++i) partials.sum[i % 16] = term(i, partials.sum[i % 16]);
  return partials.total();
}

// The largest of count > 0 numbers.
template <class T>
inline T largest(int64_t count, const T* x) {
  T lanes[16];
  for (int64_t l = 0; l < 16; ++l) lanes[l] = x[std::min(l, count - 1)];
  int64_t i = 16;
  for (; i + 16 <= count; i += 16) {
#pragma GCC unroll 16
    for (int64_t l = 0; l < 16; ++l) lanes[l] = x[i + l] > lanes[l] ? x[i + l] : lanes[l];
  }
  for (; i < count; ++i) lanes[0] = x[i] > lanes[0] ? x[i] : lanes[0];
  T max = lanes[0];
  for (int64_t l = 1; l < 16; ++l) max = lanes[l] > max ? lanes[l] : max;
  return max;
}

}  // namespace temper::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
