// Elementary functions as plain arithmetic: written once, for a scalar T, so that the compiler's
// vectors (each SIMD target compiles this file again), the scalar code and every batch width give
// the same bits. float: at most 2 units in the last place; double: the C library's,
// but for the normal distribution's.
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

// e^x for x <= 0, in double, within one unit in the last place: Cody and Waite's reduction, the
// series to x^13, 2^n in two halves. exact::quick_exp (base/exact_math.h) is the same with products
// that are rounded, for code that is compiled for any processor; here they are fused, and loops of
// it become vectors. The two differ in the last bit for one argument in a hundred, and what is
// computed by either (GELU here; heads' sums, sinks and samplers there) has promised its bits.
HWY_INLINE double exp_below_0(double x) {
  const double clamped = x < -746.0 ? -746.0 : x;
  constexpr double kRound = 0x1.8p52;  // as above
  const double n = (clamped * 1.4426950408889634 + kRound) - kRound;
  double r = std::fma(n, -0x1.62e42fefa39efp-1, clamped);
  r = std::fma(n, -0x1.abc9e3b39803fp-56, r);
  double p = 1 / 6227020800.0;
  p = std::fma(p, r, 1 / 479001600.0);
  p = std::fma(p, r, 1 / 39916800.0);
  p = std::fma(p, r, 1 / 3628800.0);
  p = std::fma(p, r, 1 / 362880.0);
  p = std::fma(p, r, 1 / 40320.0);
  p = std::fma(p, r, 1 / 5040.0);
  p = std::fma(p, r, 1 / 720.0);
  p = std::fma(p, r, 1 / 120.0);
  p = std::fma(p, r, 1 / 24.0);
  p = std::fma(p, r, 1 / 6.0);
  p = std::fma(p, r, 0.5);
  const double y = std::fma(p, r * r, r) + 1.0;
  // As in exp_of(float), the integers are read out of bits.
  constexpr int64_t kZero = std::bit_cast<int64_t>(kRound);
  const double half = (n * 0.5 + kRound) - kRound;
  const int64_t i = std::bit_cast<int64_t>(half + kRound) - kZero,
                j = std::bit_cast<int64_t>(n - half + kRound) - kZero;
  return y * std::bit_cast<double>((i + 1023) << 52) * std::bit_cast<double>((j + 1023) << 52);
}

// The normal distribution function Φ(x) = erfc(-x / √2) / 2, and e^(-x² / 2), its density times
// √(2 π). In double whatever the argument was, with x² exact if it was a float: within 1e-14 of
// Φ(x), for x far below 0 as well.
struct Normal {
  double distribution, bell;
};
HWY_INLINE Normal normal_of(double x) {
  const double z = (x < 0 ? -x : x) * 0.70710678118654752, t = 2.0 / (2.0 + z), u = 2.0 * t - 1.0;
  // erfc(z) e^(z²) / t for z >= 0 as a polynomial in u: its Chebyshev series on [-1, 1], computed
  // with 60 digits, to the 26th term.
  constexpr double kTail[] = {
      1.2051665995883637e-09,  -1.05903331435718e-09,  -9.744756625932259e-09,
      1.3216325517632649e-08,  2.9041985444209086e-08, -6.965842943409138e-08,
      -1.6982724012935667e-09, 1.7867229479168533e-07, -2.855481823834117e-07,
      -1.3754508233185945e-08, 1.00091858626541e-06,   -1.8150355080541665e-06,
      -5.628166935192924e-07,  8.05787586714734e-06,   -1.0848057268891096e-05,
      -1.7073781133818914e-05, 7.223535061438543e-05,  -1.7185831874889752e-05,
      -0.00033153674761946043, 0.0004186480432791111,  0.0015453060290576436,
      -0.0032395925345820673,  -0.010755330944716365,  0.01822111575345904,
      0.13973604627802688,     0.34358034220690514,    0.5107913526210115};
  double tail = kTail[0];
#pragma GCC unroll 32
  for (int i = 1; i < 27; ++i) tail = std::fma(tail, u, kTail[i]);
  const double bell = exp_below_0(-0.5 * x * x), beyond = 0.5 * t * tail * bell;
  return {x < 0 ? beyond : 1.0 - beyond, bell};
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
