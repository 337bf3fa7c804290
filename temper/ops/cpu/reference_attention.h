// Attention's definition as plain loops: what float kernels must equal bit for bit, and the float64
// path.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "temper/ops/cpu/forest_attention.h"

namespace temper::kernels {

// Elementary functions of T: float's are those of the kernels (elementary-inl.h), double's the C
// library's.
struct DoubleMath {
  static double exp(double x) { return std::exp(x); }
  static double tanh(double x) { return std::tanh(x); }
};

template <class T>
std::vector<int64_t> reference_path(const ForestView& forest, int64_t segment, int64_t token) {
  std::vector<int64_t> segments, tokens;
  for (int64_t s = segment; s >= 0; s = forest.parent[s]) segments.insert(segments.begin(), s);
  for (int64_t s : segments)
    for (int64_t t = forest.segment_start[s];
         t < forest.segment_start[s + 1] && (s != segment || t <= token); ++t)
      tokens.push_back(t);
  return tokens;
}

template <class T, class Math>
void reference_attention(const AttentionShape& shape, const ForestView& forest, const T* q,
                         const T* k, const T* v, T* out, T* lse) {
  const int64_t heads = shape.num_heads, kv = shape.num_kv_heads, dim = shape.head_dim,
                group = heads / kv;
  const T scale = static_cast<T>(shape.scale), cap = static_cast<T>(shape.soft_cap);
  for (int64_t s = 0; s < forest.num_segments; ++s)
    for (int64_t t = forest.segment_start[s]; t < forest.segment_start[s + 1]; ++t) {
      const std::vector<int64_t> path = reference_path<T>(forest, s, t);
      const int64_t n = static_cast<int64_t>(path.size()),
                    lo = shape.window > 0 ? std::max<int64_t>(0, n - shape.window) : 0;
      for (int64_t h = 0; h < heads; ++h) {
        std::vector<T> e(static_cast<size_t>(n));
        T max = 0;
        for (int64_t j = lo; j < n; ++j) {
          T score = 0;
          for (int64_t d = 0; d < dim; ++d)
            score = std::fma(q[(t * heads + h) * dim + d], k[(path[j] * kv + h / group) * dim + d],
                             score);
          score *= scale;
          if (cap > 0) score = cap * Math::tanh(score / cap);
          e[j] = score;
          max = j == lo || score > max ? score : max;
        }
        T sum[16] = {};
        for (int64_t j = lo; j < n; ++j) {
          e[j] = Math::exp(e[j] - max);
          sum[j % 16] += e[j];
        }
        for (int64_t width = 8; width >= 1; width /= 2)
          for (int64_t i = 0; i < width; ++i) sum[i] += sum[i + width];
        for (int64_t d = 0; d < dim; ++d) {
          T o = 0;
          for (int64_t j = lo; j < n; ++j)
            o = std::fma(e[j], v[(path[j] * kv + h / group) * dim + d], o);
          out[(t * heads + h) * dim + d] = o / sum[0];
        }
        if (lse) lse[t * heads + h] = max + static_cast<T>(std::log(static_cast<double>(sum[0])));
      }
    }
}

// The gradient, term by term. dq, dk, dv are overwritten.
template <class T, class Math>
void reference_attention_backward(const AttentionShape& shape, const ForestView& forest, const T* q,
                                  const T* k, const T* v, const T* out, const T* lse, const T* dout,
                                  T* dq, T* dk, T* dv) {
  const int64_t heads = shape.num_heads, kv = shape.num_kv_heads, dim = shape.head_dim,
                group = heads / kv;
  const T scale = static_cast<T>(shape.scale), cap = static_cast<T>(shape.soft_cap);
  std::fill(dq, dq + forest.num_tokens * heads * dim, T(0));
  std::fill(dk, dk + forest.num_tokens * kv * dim, T(0));
  std::fill(dv, dv + forest.num_tokens * kv * dim, T(0));
  for (int64_t s = 0; s < forest.num_segments; ++s)
    for (int64_t t = forest.segment_start[s]; t < forest.segment_start[s + 1]; ++t) {
      const std::vector<int64_t> path = reference_path<T>(forest, s, t);
      const int64_t n = static_cast<int64_t>(path.size()),
                    lo = shape.window > 0 ? std::max<int64_t>(0, n - shape.window) : 0;
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t at = (t * heads + h) * dim;
        T delta = 0;
        for (int64_t d = 0; d < dim; ++d) delta += dout[at + d] * out[at + d];
        for (int64_t j = lo; j < n; ++j) {
          const int64_t key = (path[j] * kv + h / group) * dim;
          T score = 0, dp = 0, slope = scale;
          for (int64_t d = 0; d < dim; ++d) score = std::fma(q[at + d], k[key + d], score);
          for (int64_t d = 0; d < dim; ++d) dp = std::fma(dout[at + d], v[key + d], dp);
          score *= scale;
          if (cap > 0) {
            const T bent = Math::tanh(score / cap);
            score = cap * bent;
            slope *= 1 - bent * bent;
          }
          const T p = Math::exp(score - lse[t * heads + h]), ds = p * (dp - delta) * slope;
          for (int64_t d = 0; d < dim; ++d) {
            dq[at + d] += ds * k[key + d];
            dk[key + d] += ds * q[at + d];
            dv[key + d] += p * dout[at + d];
          }
        }
      }
    }
}

}  // namespace temper::kernels
