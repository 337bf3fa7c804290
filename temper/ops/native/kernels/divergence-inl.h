// The arithmetic of divergence.h. Included once for each SIMD target.
#if defined(TEMPER_DIVERGENCE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TEMPER_DIVERGENCE_INL_H
#undef TEMPER_DIVERGENCE_INL_H
#else
#define TEMPER_DIVERGENCE_INL_H
#endif

#include <algorithm>

#include "temper/ops/native/kernels/divergence.h"
#include "temper/ops/native/kernels/elementary-inl.h"
#include "temper/ops/native/kernels/rows.h"

HWY_BEFORE_NAMESPACE();
namespace temper::kernels::HWY_NAMESPACE {

inline double log_of(double x) { return std::log(x); }

// Cephes: x = 2^e f with f in [sqrt(1/2), sqrt(2)), and a polynomial in f - 1. x is positive and
// normal; what is smaller gives a finite number.
HWY_INLINE float log_of(float x) {
  const int32_t bits = std::bit_cast<int32_t>(x) - 0x3f3504f3;  // sqrt(1/2)
  const float e = static_cast<float>(bits >> 23);
  const float f = std::bit_cast<float>((bits & 0x007fffff) + 0x3f3504f3) - 1.0f;
  const float z = f * f;
  float p = 7.0376836292e-2f;
  p = std::fma(p, f, -1.1514610310e-1f);
  p = std::fma(p, f, 1.1676998740e-1f);
  p = std::fma(p, f, -1.2420140846e-1f);
  p = std::fma(p, f, 1.4249322787e-1f);
  p = std::fma(p, f, -1.6668057665e-1f);
  p = std::fma(p, f, 2.0000714765e-1f);
  p = std::fma(p, f, -2.4999993993e-1f);
  p = std::fma(p, f, 3.3333331174e-1f);
  float y = p * f * z;
  y = std::fma(e, -2.12194440e-4f, y);
  y = std::fma(z, -0.5f, y);
  return std::fma(e, 0.693359375f, f + y);
}

template <class T>
DivergencePart<T> divergence_part(int64_t count, const T* s, const T* t) {
  alignas(64) T es[kVocabularyBlock], et[kVocabularyBlock];
  const T max_s = largest(count, s), max_t = largest(count, t);
  for (int64_t j = 0; j < count; ++j) es[j] = exp_of(s[j] - max_s);
  for (int64_t j = 0; j < count; ++j) et[j] = exp_of(t[j] - max_t);
  return {max_s,
          sum16<T>(0, count, [&es](int64_t j, T sum) { return sum + es[j]; }),
          max_t,
          sum16<T>(0, count, [&et](int64_t j, T sum) { return sum + et[j]; }),
          sum16<T>(0, count, [&](int64_t j, T sum) { return std::fma(es[j], s[j] - t[j], sum); }),
          sum16<T>(0, count, [&](int64_t j, T sum) { return std::fma(et[j], t[j] - s[j], sum); })};
}

template <class T>
void DivergenceParts(const LogitRows<T>& x, DivergencePart<T>* parts, int64_t stride) {
#pragma omp parallel for schedule(static) if (x.rows * x.count > 32768)
  for (int64_t r = 0; r < x.rows; ++r)
    for (int64_t b = 0; b < x.count; b += kVocabularyBlock)
      parts[r * stride + b / kVocabularyBlock] =
          divergence_part(std::min(kVocabularyBlock, x.count - b), x.student + r * x.count + b,
                          x.teacher + r * x.count + b);
}

template <class T>
MixturePart<T> mixture_part(int64_t count, const T* s, const T* t, T lse_s, T lse_t, T b) {
  alignas(64) T ps[kVocabularyBlock], pt[kVocabularyBlock];
  for (int64_t j = 0; j < count; ++j) {
    const T log_s = s[j] - lse_s, log_t = t[j] - lse_t;
    const T p = exp_of(log_s), q = exp_of(log_t);
    const T log_m = log_of(std::fma(b, q, (T(1) - b) * p));
    ps[j] = p * (log_s - log_m);
    pt[j] = q * (log_t - log_m);
  }
  return {sum16<T>(0, count, [&ps](int64_t j, T sum) { return sum + ps[j]; }),
          sum16<T>(0, count, [&pt](int64_t j, T sum) { return sum + pt[j]; })};
}

template <class T>
void MixtureParts(const LogitRows<T>& x, T b, MixturePart<T>* parts, int64_t stride) {
#pragma omp parallel for schedule(static) if (x.rows * x.count > 32768)
  for (int64_t r = 0; r < x.rows; ++r)
    for (int64_t first = 0; first < x.count; first += kVocabularyBlock)
      parts[r * stride + first / kVocabularyBlock] =
          mixture_part(std::min(kVocabularyBlock, x.count - first), x.student + r * x.count + first,
                       x.teacher + r * x.count + first, x.lse_student[r], x.lse_teacher[r], b);
}

// With p the student's and q the teacher's distribution, and m = b q + (1 - b) p:
//   KL(q || p): p - q;   KL(p || q): p (log p/q - KL);   jsd: (1 - b) p (log p/m - KL(p || m)).
template <class T>
void DivergenceGradient(const LogitRows<T>& x, DivergenceKind kind, T b, const T* value, const T* g,
                        T* out) {
#pragma omp parallel for schedule(static) if (x.rows * x.count > 32768)
  for (int64_t r = 0; r < x.rows; ++r) {
    const T *s = x.student + r * x.count, *t = x.teacher + r * x.count;
    const T lse_s = x.lse_student[r], lse_t = x.lse_teacher[r], gr = g[r];
    T* to = out + r * x.count;
    if (kind == DivergenceKind::kForwardKl) {
      for (int64_t j = 0; j < x.count; ++j)
        to[j] = gr * (exp_of(s[j] - lse_s) - exp_of(t[j] - lse_t));
    } else if (kind == DivergenceKind::kReverseKl) {
      const T kl = value[r];
      for (int64_t j = 0; j < x.count; ++j) {
        const T log_s = s[j] - lse_s, log_t = t[j] - lse_t;
        to[j] = gr * exp_of(log_s) * (log_s - log_t - kl);
      }
    } else {
      const T kl = value[r], scale = gr * (T(1) - b);
      for (int64_t j = 0; j < x.count; ++j) {
        const T log_s = s[j] - lse_s, p = exp_of(log_s), q = exp_of(t[j] - lse_t);
        to[j] = scale * p * (log_s - log_of(std::fma(b, q, (T(1) - b) * p)) - kl);
      }
    }
  }
}

template <class T>
void Products(int64_t count, const T* a, const T* b, T* out) {
  out[0] = sum16<T>(0, count, [=](int64_t i, T s) { return std::fma(a[i], b[i], s); });
  out[1] = sum16<T>(0, count, [=](int64_t i, T s) { return std::fma(a[i], a[i], s); });
  out[2] = sum16<T>(0, count, [=](int64_t i, T s) { return std::fma(b[i], b[i], s); });
}

template <class T>
T SquaredDistance(int64_t count, const T* a, const T* b) {
  return sum16<T>(0, count, [=](int64_t i, T s) {
    const T d = a[i] - b[i];
    return std::fma(d, d, s);
  });
}

template <class T>
void Softmax(int64_t count, T* x) {
  const T max = largest(count, x);
  for (int64_t j = 0; j < count; ++j) x[j] = exp_of(x[j] - max);
  const T scale = T(1) / sum16<T>(0, count, [x](int64_t j, T sum) { return sum + x[j]; });
  for (int64_t j = 0; j < count; ++j) x[j] *= scale;
}

template <class T>
void SoftmaxBackward(int64_t count, const T* p, T* dp) {
  const T mean = sum16<T>(0, count, [=](int64_t j, T sum) { return std::fma(p[j], dp[j], sum); });
  for (int64_t j = 0; j < count; ++j) dp[j] = p[j] * (dp[j] - mean);
}

}  // namespace temper::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
