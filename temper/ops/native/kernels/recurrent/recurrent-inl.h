// The arithmetic of short convolutions and of L2 norms (recurrent.h), once for each SIMD target.
#if defined(TEMPER_RECURRENT_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TEMPER_RECURRENT_INL_H
#undef TEMPER_RECURRENT_INL_H
#else
#define TEMPER_RECURRENT_INL_H
#endif

#include <algorithm>
#include <vector>

#include "temper/ops/native/kernels/elementary-inl.h"
#include "temper/ops/native/kernels/recurrent/recurrent.h"

HWY_BEFORE_NAMESPACE();
namespace temper::kernels::HWY_NAMESPACE {

// Below this many elements a parallel region costs more than it saves.
constexpr int64_t kParallelRecurrent = 16384;

// Of each token the one before it on its path; of the first one of the r-th root -1 - r.
inline std::vector<int64_t> tokens_before(const ForestView& f) {
  std::vector<int64_t> before(static_cast<size_t>(f.num_tokens));
  int64_t roots = 0;
  for (int64_t s = 0; s < f.num_segments; ++s) {
    const int64_t begin = f.segment_start[s];
    for (int64_t n = begin; n < f.segment_start[s + 1]; ++n) before[static_cast<size_t>(n)] = n - 1;
    before[static_cast<size_t>(begin)] =
        f.parent[s] < 0 ? -1 - roots++ : f.segment_start[f.parent[s] + 1] - 1;
  }
  return before;
}

// The inputs that token n reads, the oldest first, and the tokens that they belong to (below 0: to
// none of the batch).
template <class T>
struct Taps {
  const T* row[kMostTaps];
  int64_t token[kMostTaps];
  Taps(const ConvolutionShape& s, const std::vector<int64_t>& before, int64_t n, const T* x,
       const T* const* carried, const T* zeros) {
    int64_t j = s.width - 1;
    for (; j >= 0 && n >= 0; --j, n = before[static_cast<size_t>(n)]) {
      row[j] = x + n * s.channels;
      token[j] = n;
    }
    const T* older = carried && j >= 0 ? carried[-1 - n] : nullptr;
    for (int64_t k = s.width - 2; j >= 0; --j, --k) {
      row[j] = older ? older + k * s.channels : zeros;
      token[j] = -1;
    }
  }
};

// Channels [begin, end) before the activation.
template <class T>
void convolve(const ConvolutionShape& s, const Taps<T>& taps, const T* weight, const T* bias,
              int64_t begin, int64_t end, T* y) {
  for (int64_t c = begin; c < end; ++c) y[c - begin] = 0;
  for (int64_t j = 0; j < s.width; ++j) {
    const T *w = weight + j * s.channels, *x = taps.row[j];
    for (int64_t c = begin; c < end; ++c) y[c - begin] = std::fma(w[c], x[c], y[c - begin]);
  }
  if (bias)
    for (int64_t c = begin; c < end; ++c) y[c - begin] += bias[c];
}

template <class T>
void ShortConvolution(const ConvolutionShape& s, const ForestView& f, const T* x, const T* weight,
                      const T* bias, const T* const* carried, T* y) {
  const std::vector<int64_t> before = tokens_before(f);
  const std::vector<T> zeros(static_cast<size_t>(s.channels));
#pragma omp parallel for schedule(static) if (f.num_tokens * s.channels > kParallelRecurrent)
  for (int64_t n = 0; n < f.num_tokens; ++n) {
    const Taps<T> taps(s, before, n, x, carried, zeros.data());
    T* out = y + n * s.channels;
    convolve(s, taps, weight, bias, 0, s.channels, out);
    if (s.silu)
      for (int64_t c = 0; c < s.channels; ++c) out[c] = out[c] * sigmoid_of(out[c]);
  }
}

// Each thread has channels of its own, and goes through all tokens in order.
template <class T>
void ShortConvolutionBackward(const ConvolutionShape& s, const ForestView& f, const T* x,
                              const T* weight, const T* bias, const T* dy, T* dx, T* dweight,
                              T* dbias) {
  constexpr int64_t kBlock = 64;
  const std::vector<int64_t> before = tokens_before(f);
  const std::vector<T> zeros(static_cast<size_t>(s.channels));
#pragma omp parallel for schedule(static) if (f.num_tokens * s.channels > kParallelRecurrent)
  for (int64_t begin = 0; begin < s.channels; begin += kBlock) {
    const int64_t end = std::min(s.channels, begin + kBlock);
    T g[kBlock];
    for (int64_t n = 0; n < f.num_tokens; ++n) {
      const Taps<T> taps(s, before, n, x, nullptr, zeros.data());
      const T* d = dy + n * s.channels;
      if (s.silu) {
        convolve(s, taps, weight, bias, begin, end, g);
        for (int64_t c = begin; c < end; ++c) {
          const T p = sigmoid_of(g[c - begin]);
          g[c - begin] = d[c] * (p * (T(1) + g[c - begin] * (T(1) - p)));
        }
      } else {
        for (int64_t c = begin; c < end; ++c) g[c - begin] = d[c];
      }
      for (int64_t j = 0; j < s.width; ++j) {
        if (taps.token[j] < 0) continue;
        const T *w = weight + j * s.channels, *in = taps.row[j];
        T *to = dx + taps.token[j] * s.channels, *dw = dweight + j * s.channels;
        for (int64_t c = begin; c < end; ++c) {
          to[c] = std::fma(w[c], g[c - begin], to[c]);
          dw[c] = std::fma(in[c], g[c - begin], dw[c]);
        }
      }
      if (dbias)
        for (int64_t c = begin; c < end; ++c) dbias[c] += g[c - begin];
    }
  }
}

template <class T>
T inverse_l2(int64_t width, const T* x, double eps) {
  const T squares = sum16<T>(0, width, [x](int64_t i, T sum) { return std::fma(x[i], x[i], sum); });
  return T(1) / sqrt_of(squares + static_cast<T>(eps));
}

template <class T>
void L2Norm(const HeadRows& rows, const T* x, double eps, double scale, T* y) {
#pragma omp parallel for schedule(static) if (rows.numbers() > kParallelRecurrent)
  for (int64_t r = 0; r < rows.tokens * rows.heads; ++r) {
    const T* in = x + rows.place(r);
    T* out = y + r * rows.width;
    const T inverse = inverse_l2(rows.width, in, eps);
    for (int64_t i = 0; i < rows.width; ++i) out[i] = in[i] * inverse * static_cast<T>(scale);
  }
}

// With u = 1 / sqrt(Σ x² + eps): dx = scale u (dy - x u² Σ x dy).
template <class T>
void L2NormBackward(const HeadRows& rows, const T* x, double eps, double scale, const T* dy,
                    T* dx) {
#pragma omp parallel for schedule(static) if (rows.numbers() > kParallelRecurrent)
  for (int64_t r = 0; r < rows.tokens * rows.heads; ++r) {
    const T *in = x + rows.place(r), *d = dy + r * rows.width;
    T* out = dx + rows.place(r);
    const T inverse = inverse_l2(rows.width, in, eps);
    const T dot =
        sum16<T>(0, rows.width, [in, d](int64_t i, T sum) { return std::fma(in[i], d[i], sum); });
    for (int64_t i = 0; i < rows.width; ++i)
      out[i] = static_cast<T>(scale) * inverse * (d[i] - in[i] * (inverse * inverse * dot));
  }
}

}  // namespace temper::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
