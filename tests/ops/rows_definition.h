// What the kernels of temper/ops/native/kernels/rows.h compute, as the plainest loops: float
// kernels must equal these bit for bit on every SIMD target. Only the elementary functions are the
// kernels' own; elementary_test.cpp measures those.
#pragma once

#include "temper/ops/native/kernels/targets.h"
// clang-format off
#include <hwy/highway.h>
#include "temper/ops/native/kernels/elementary-inl.h"
// clang-format on

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "temper/base/random.h"
#include "temper/ops/native/kernels/rows.h"

namespace temper::definition {

namespace elementary = temper::kernels::HWY_NAMESPACE;
using kernels::Gate;
using kernels::Rotation;

// Σ over a row: element i joins partial sum i mod 16 by partial = term(i, partial); a tree joins
// the sixteen.
template <class Term>
auto row_sum(int64_t count, Term term) {
  std::vector<decltype(term(0, 0.0f))> partial(16, 0);
  for (int64_t i = 0; i < count; ++i) partial[i % 16] = term(i, partial[i % 16]);
  for (int64_t width = 8; width > 0; width /= 2)
    for (int64_t i = 0; i < width; ++i) partial[i] += partial[i + width];
  return partial[0];
}

inline float inverse_rms(const float* x, int64_t width, float eps) {
  const float squares =
      row_sum(width, [&](int64_t i, float sum) { return std::fma(x[i], x[i], sum); });
  return 1.0f / std::sqrt(squares / static_cast<float>(width) + eps);
}

inline void rms_norm(int64_t rows, int64_t width, const float* x, const float* weight, float eps,
                     bool add_unit_offset, float* y) {
  for (int64_t r = 0; r < rows; ++r, x += width, y += width) {
    const float scale = inverse_rms(x, width, eps);
    for (int64_t i = 0; i < width; ++i)
      y[i] = x[i] * scale * (weight[i] + (add_unit_offset ? 1.0f : 0.0f));
  }
}

// dweight: 64 rows at a time, the sums of these in order.
inline void rms_norm_backward(int64_t rows, int64_t width, const float* x, const float* weight,
                              float eps, bool add_unit_offset, const float* dy, float* dx,
                              float* dweight) {
  const float offset = add_unit_offset ? 1.0f : 0.0f;
  std::vector<float> sum(static_cast<size_t>(width));
  for (int64_t r = 0; r < rows; ++r, x += width, dy += width, dx += width) {
    const float scale = inverse_rms(x, width, eps);
    const float dot = row_sum(width, [&](int64_t i, float s) {
      return std::fma(dy[i] * (offset + weight[i]), x[i] * scale, s);
    });
    const float mean = dot / static_cast<float>(width);
    for (int64_t i = 0; i < width; ++i) {
      dx[i] += scale * (dy[i] * (offset + weight[i]) - x[i] * scale * mean);
      sum[i] += dy[i] * (x[i] * scale);
      if (r % 64 == 63 || r == rows - 1) dweight[i] += std::exchange(sum[i], 0.0f);
    }
  }
}

inline void center(int64_t rows, int64_t width, const float* x, float* y) {
  for (int64_t r = 0; r < rows; ++r, x += width, y += width) {
    const float mean =
        row_sum(width, [&](int64_t i, float s) { return s + x[i]; }) / static_cast<float>(width);
    for (int64_t i = 0; i < width; ++i) y[i] = x[i] - mean;
  }
}

inline void rotate(int64_t rows, int64_t heads, int64_t dim, const Rotation& rotation,
                   const int64_t* position, const float* cos, const float* sin, bool inverse,
                   float* x) {
  const int64_t half = rotation.rotated / 2;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t h = 0; h < heads; ++h, x += dim)
      for (int64_t i = 0; i < half; ++i) {
        float& first = x[rotation.interleaved ? 2 * i : i];
        float& second = x[rotation.interleaved ? 2 * i + 1 : i + half];
        const float a = first, b = second, c = cos[position[r] * half + i];
        const float s = inverse ? -sin[position[r] * half + i] : sin[position[r] * half + i];
        first = std::fma(-b, s, a * c);
        second = std::fma(a, s, b * c);
      }
}

inline float gelu_tanh_inner(float g) {
  return 0.79788456080286536f * std::fma(0.044715f * g * g, g, g);
}
inline float gate_value(Gate kind, float g) {
  switch (kind) {
    case Gate::kSilu:
      return g * (1.0f / (1.0f + elementary::exp_of(-g)));
    case Gate::kGeluTanh:
      return 0.5f * g * (1.0f + elementary::tanh_of(gelu_tanh_inner(g)));
    case Gate::kGelu:
      return static_cast<float>(g * elementary::normal_of(g).distribution);
    case Gate::kSigmoid:
      return 1.0f / (1.0f + elementary::exp_of(-g));
    case Gate::kIdentity:
      return g;
  }
  return 0;
}
inline float gate_slope(Gate kind, float g) {
  switch (kind) {
    case Gate::kSilu: {
      const float s = 1.0f / (1.0f + elementary::exp_of(-g));
      return s * (1.0f + g * (1.0f - s));
    }
    case Gate::kGeluTanh: {
      const float t = elementary::tanh_of(gelu_tanh_inner(g));
      return 0.5f * (1.0f + t) +
             0.5f * g * (1.0f - t * t) * 0.79788456080286536f * (1.0f + 0.134145f * g * g);
    }
    case Gate::kGelu: {
      const elementary::Normal normal = elementary::normal_of(g);
      return static_cast<float>(normal.distribution + g * (normal.bell * 0.39894228040143268));
    }
    case Gate::kSigmoid: {
      const float s = 1.0f / (1.0f + elementary::exp_of(-g));
      return s * (1.0f - s);
    }
    case Gate::kIdentity:
      return 1.0f;
  }
  return 0;
}

inline kernels::SoftmaxPart<float> softmax_part(const float* x, int64_t count) {
  const float max = *std::max_element(x, x + count);
  const auto e = [&](int64_t i) { return elementary::exp_of(x[i] - max); };
  return {max, row_sum(count, [&](int64_t i, float s) { return s + e(i); }),
          row_sum(count, [&](int64_t i, float s) { return std::fma(e(i), x[i] - max, s); })};
}

struct LogSumExp {
  float value, entropy;
};
inline LogSumExp log_sum_exp(const float* x, int64_t count) {
  const float max = *std::max_element(x, x + count);
  float sum = 0, weighted = 0;
  for (int64_t i = 0; i < count; i += kernels::kVocabularyBlock) {
    const auto part = softmax_part(x + i, std::min(kernels::kVocabularyBlock, count - i));
    const float shift = part.max - max, factor = elementary::exp_of(shift);
    sum = std::fma(part.sum, factor, sum);
    weighted = std::fma(std::fma(part.sum, shift, part.weighted), factor, weighted);
  }
  const float log_sum = static_cast<float>(std::log(static_cast<double>(sum)));
  return {max + log_sum, log_sum - weighted / sum};
}

inline void softmax_gradient(const float* x, int64_t count, int64_t target, LogSumExp lse, float g,
                             const float* h, float* dx) {
  for (int64_t i = 0; i < count; ++i) {
    const float logp = x[i] - lse.value, p = elementary::exp_of(logp);
    dx[i] = h ? -p * (g + *h * (logp + lse.entropy)) : -g * p;
  }
  if (target >= 0 && target < count) dx[target] += g;
}

inline double sum_of_squares(const float* x, int64_t count) {
  double total = 0;
  for (int64_t begin = 0; begin < count; begin += 65536)
    total += row_sum(std::min<int64_t>(65536, count - begin), [&](int64_t i, double s) {
      const double v = x[begin + i];
      return std::fma(v, v, s);
    });
  return total;
}

}  // namespace temper::definition
