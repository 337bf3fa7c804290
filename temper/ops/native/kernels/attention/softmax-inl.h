// The exponentials of attention, in vectors. Included once for each SIMD target.
#if defined(TEMPER_SOFTMAX_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TEMPER_SOFTMAX_INL_H
#undef TEMPER_SOFTMAX_INL_H
#else
#define TEMPER_SOFTMAX_INL_H
#endif

#include <algorithm>
#include <bit>

#include "temper/ops/native/kernels/attention/attention_pages-inl.h"
#include "temper/ops/native/kernels/elementary-inl.h"

HWY_BEFORE_NAMESPACE();
namespace temper::kernels::HWY_NAMESPACE {

// Slots [lo, hi) of a page; either may be outside it.
struct Slots {
  int64_t lo, hi;
  bool all() const { return lo <= 0 && hi >= kPage; }
};

#if TEMPER_HAS_FMA
constexpr int kPageVectors = kPage / kLanes, kSumVectors = 16 / kLanes;
// Vectors whose exponentials are computed side by side, as each is a long chain; and their pages.
constexpr int kStepPages = std::max(1, 4 / kPageVectors), kStep = kStepPages * kPageVectors;

// Each x becomes exp_of(x), bit for bit if x <= 40, in fewer steps: 2^n is applied as 2^(n + 64)
// and 2^-64. The first product is exact, and the second is rounded once, as exp_of's second is.
template <int kCount>
HWY_INLINE void exp_below(D d, hn::Vec<D> (&x)[kCount]) {
  const hn::RebindToUnsigned<D> bits;
  constexpr float kRound = 12582912.0f;
  constexpr uint32_t kBias = (127 + 64 - std::bit_cast<uint32_t>(kRound)) << 23;
  constexpr float kTerms[] = {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f,
                              1.6666665459e-1f, 5.0000001201e-1f};
  hn::Vec<D> shifted[kCount], p[kCount];
#pragma GCC unroll 16
  for (int i = 0; i < kCount; ++i) {
    x[i] = hn::Max(hn::Set(d, -104.0f), x[i]);
    shifted[i] = hn::Add(hn::Mul(x[i], hn::Set(d, 1.44269504088896341f)), hn::Set(d, kRound));
  }
#pragma GCC unroll 16
  for (int i = 0; i < kCount; ++i) {
    const hn::Vec<D> n = hn::Sub(shifted[i], hn::Set(d, kRound));
    x[i] = hn::MulAdd(n, hn::Set(d, -0.693145751953125f), x[i]);
    x[i] = hn::MulAdd(n, hn::Set(d, -1.42860677e-6f), x[i]);
    p[i] = hn::Set(d, 1.9875691500e-4f);
  }
#pragma GCC unroll 16
  for (const float term : kTerms)
#pragma GCC unroll 16
    for (int i = 0; i < kCount; ++i) p[i] = hn::MulAdd(p[i], x[i], hn::Set(d, term));
#pragma GCC unroll 16
  for (int i = 0; i < kCount; ++i) {
    const hn::Vec<D> y = hn::Add(hn::MulAdd(p[i], hn::Mul(x[i], x[i]), x[i]), hn::Set(d, 1.0f));
    const auto power =
        hn::Add(hn::ShiftLeft<23>(hn::BitCast(bits, shifted[i])), hn::Set(bits, kBias));
    x[i] = hn::Mul(hn::Mul(y, hn::BitCast(d, power)), hn::Set(d, 0x1p-64f));
  }
}

// The v-th vector of a page, 0 but for the slots.
HWY_INLINE hn::Vec<D> only(D d, Slots slots, int v, hn::Vec<D> x) {
  const hn::Vec<D> at = hn::Iota(d, static_cast<float>(v * kLanes));
  const auto seen = hn::And(hn::Ge(at, hn::Set(d, static_cast<float>(slots.lo))),
                            hn::Lt(at, hn::Set(d, static_cast<float>(slots.hi))));
  return hn::IfThenElseZero(seen, x);
}
#endif

// Raises `most` [kPage], the largest scores of a row by slot, by those of `count` pages, `stride`
// floats apart.
inline void raise_largest(const float* scores, int64_t stride, int64_t count, float* most) {
#if TEMPER_HAS_FMA
  const D d;
  hn::Vec<D> of_slot[kPageVectors];
#pragma GCC unroll 16
  for (int v = 0; v < kPageVectors; ++v) of_slot[v] = hn::LoadU(d, most + v * kLanes);
  for (; count > 0; --count, scores += stride)
#pragma GCC unroll 16
    for (int v = 0; v < kPageVectors; ++v)
      of_slot[v] = hn::Max(hn::LoadU(d, scores + v * kLanes), of_slot[v]);
#pragma GCC unroll 16
  for (int v = 0; v < kPageVectors; ++v) hn::StoreU(of_slot[v], d, most + v * kLanes);
#else
  for (; count > 0; --count, scores += stride)
    for (int64_t i = 0; i < kPage; ++i) most[i] = scores[i] > most[i] ? scores[i] : most[i];
#endif
}
// By those of some slots of one page.
inline void raise_largest(const float* scores, Slots slots, float* most) {
  for (int64_t i = std::max<int64_t>(0, slots.lo); i < std::min(kPage, slots.hi); ++i)
    most[i] = scores[i] > most[i] ? scores[i] : most[i];
}

// What turns a row's scores into weights: exp(score * factor - max), which is at most 1.
struct Exponents {
  float factor, max;
};

#if TEMPER_HAS_FMA
template <int kPages>
HWY_INLINE void weigh_step(D d, const float* scores, int64_t stride, Exponents by, Slots slots,
                           float* to, hn::Vec<D> (&sums)[kSumVectors]) {
  constexpr int kCount = kPages * kPageVectors;
  hn::Vec<D> e[kCount];
#pragma GCC unroll 16
  for (int v = 0; v < kCount; ++v) {
    const float* from = scores + v / kPageVectors * stride + v % kPageVectors * kLanes;
    e[v] = hn::Sub(hn::Mul(hn::LoadU(d, from), hn::Set(d, by.factor)), hn::Set(d, by.max));
  }
  exp_below(d, e);
  const bool all = slots.all();
#pragma GCC unroll 16
  for (int v = 0; v < kCount; ++v) {
    if (!all) e[v] = only(d, slots, v % kPageVectors, e[v]);
    hn::StoreU(e[v], d, to + v * kLanes);
    sums[v % kSumVectors] = hn::Add(sums[v % kSumVectors], e[v]);
  }
}
#endif

// The weights of scores in `count` pages, `stride` floats apart, are written side by side and added
// to `sum` [16]: those of slots that are not seen are 0.
inline void weigh_pages(const float* scores, int64_t stride, int64_t count, Exponents by,
                        Slots slots, float* to, float* sum) {
#if TEMPER_HAS_FMA
  const D d;
  hn::Vec<D> sums[kSumVectors];
#pragma GCC unroll 16
  for (int v = 0; v < kSumVectors; ++v) sums[v] = hn::LoadU(d, sum + v * kLanes);
  for (; count >= kStepPages; count -= kStepPages, scores += kStepPages * stride)
    weigh_step<kStepPages>(d, scores, stride, by, slots, to, sums), to += kStepPages * kPage;
  for (; count > 0; --count, scores += stride, to += kPage)
    weigh_step<1>(d, scores, stride, by, slots, to, sums);
#pragma GCC unroll 16
  for (int v = 0; v < kSumVectors; ++v) hn::StoreU(sums[v], d, sum + v * kLanes);
#else
  for (; count > 0; --count, scores += stride, to += kPage)
    for (int64_t i = 0; i < kPage; ++i) {
      const bool seen = i >= slots.lo && i < slots.hi;
      to[i] = seen ? exp_of(scores[i] * by.factor - by.max) : 0.0f;
      sum[i % 16] += to[i];
    }
#endif
}

// In `count` pages side by side, p's scores become probabilities exp(score * factor - max), and the
// products in ds their gradients, p (ds - delta) factor. Slots that are not seen become 0.
inline void differentiate_pages(int64_t count, Exponents by, float delta, Slots slots,
                                float* HWY_RESTRICT p, float* HWY_RESTRICT ds) {
#if TEMPER_HAS_FMA
  const D d;
  const bool all = slots.all();
  const hn::Vec<D> factor = hn::Set(d, by.factor);
  const auto step = [&](auto of_step) HWY_ATTR {
    constexpr int kCount = decltype(of_step)::value;
    hn::Vec<D> e[kCount];
#pragma GCC unroll 16
    for (int v = 0; v < kCount; ++v)
      e[v] = hn::Sub(hn::Mul(hn::LoadU(d, p + v * kLanes), factor), hn::Set(d, by.max));
    exp_below(d, e);
#pragma GCC unroll 16
    for (int v = 0; v < kCount; ++v) {
      const hn::Vec<D> of_weight = hn::Sub(hn::LoadU(d, ds + v * kLanes), hn::Set(d, delta));
      hn::Vec<D> slope = hn::Mul(hn::Mul(e[v], of_weight), factor);
      if (!all) {
        slope = only(d, slots, v % kPageVectors, slope);
        e[v] = only(d, slots, v % kPageVectors, e[v]);
      }
      hn::StoreU(slope, d, ds + v * kLanes);
      hn::StoreU(e[v], d, p + v * kLanes);
    }
    p += kCount * kLanes;
    ds += kCount * kLanes;
  };
  for (; count >= kStepPages; count -= kStepPages) step(std::integral_constant<int, kStep>{});
  for (; count > 0; --count) step(std::integral_constant<int, kPageVectors>{});
#else
  for (; count > 0; --count, p += kPage, ds += kPage)
    for (int64_t i = 0; i < kPage; ++i) {
      const bool seen = i >= slots.lo && i < slots.hi;
      const float probability = exp_of(p[i] * by.factor - by.max);
      ds[i] = seen ? probability * (ds[i] - delta) * by.factor : 0.0f;
      p[i] = seen ? probability : 0.0f;
    }
#endif
}

}  // namespace temper::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
