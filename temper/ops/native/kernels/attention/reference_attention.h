// Attention's definition as plain loops: what float kernels must equal bit for bit, and the float64
// path.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "temper/ops/native/kernels/attention/forest_attention.h"

namespace temper::kernels {

// Elementary functions of T: float's are those of the kernels (elementary-inl.h), double's the C
// library's.
struct DoubleMath {
  static double exp(double x) { return std::exp(x); }
  static double tanh(double x) { return std::tanh(x); }
};

// The tokens of a path up to the last that a token sees, and of those its own place.
struct ReferencePath {
  std::vector<int64_t> tokens;
  int64_t place = 0;

  int64_t oldest(int64_t window) const { return oldest_seen(window, place); }
};
inline ReferencePath reference_path(const ForestView& forest, int64_t segment, int64_t token) {
  std::vector<int64_t> segments;
  for (int64_t s = segment; s >= 0; s = forest.parent[s]) segments.insert(segments.begin(), s);
  ReferencePath path;
  for (int64_t s : segments)
    for (int64_t t = forest.segment_start[s]; t < forest.segment_start[s + 1]; ++t) {
      const int64_t end = forest.open ? forest.open[token].end : 0,
                    at = static_cast<int64_t>(path.tokens.size());
      if (s == segment && t > token && at >= end) break;
      if (s == segment && t == token) path.place = at;
      path.tokens.push_back(t);
    }
  return path;
}

template <class T, class Math>
void reference_attention(const AttentionShape& shape, const ForestView& forest, QueryRange queries,
                         const T* q, const T* k, const T* v, T* out, T* lse) {
  const int64_t heads = shape.num_heads, kv = shape.num_kv_heads, dim = shape.head_dim,
                group = heads / kv;
  const T scale = static_cast<T>(shape.scale), cap = static_cast<T>(shape.soft_cap);
  for (int64_t s = 0; s < forest.num_segments; ++s)
    for (int64_t t = std::max(forest.segment_start[s], queries.first);
         t < std::min(forest.segment_start[s + 1], queries.end); ++t) {
      const int64_t row = t - queries.first;
      const ReferencePath seen = reference_path(forest, s, t);
      const std::vector<int64_t>& path = seen.tokens;
      const int64_t n = static_cast<int64_t>(path.size()), lo = seen.oldest(shape.window);
      for (int64_t h = 0; h < heads; ++h) {
        std::vector<T> e(static_cast<size_t>(n));
        T max = 0;
        for (int64_t j = lo; j < n; ++j) {
          T score = 0;
          for (int64_t d = 0; d < dim; ++d)
            score = std::fma(q[(row * heads + h) * dim + d],
                             k[(path[j] * kv + h / group) * dim + d], score);
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
          out[(row * heads + h) * dim + d] = o / sum[0];
        }
        if (lse) lse[row * heads + h] = max + static_cast<T>(std::log(static_cast<double>(sum[0])));
      }
    }
}

// The gradient. Sums are chains of multiply-adds from 0: dq over the keys in ascending order, dk
// and dv of each query head over the queries that see the key, in the order of the tokens; those of
// the heads that share a key are added to one another, ascending. dq, dk, dv are overwritten.
template <class T, class Math>
void reference_attention_backward(const AttentionShape& shape, const ForestView& forest,
                                  QueryRange queries, const T* q, const T* k, const T* v,
                                  const T* out, const T* lse, const T* dout, T* dq, T* dk, T* dv) {
  const int64_t heads = shape.num_heads, kv = shape.num_kv_heads, dim = shape.head_dim,
                group = heads / kv, n = forest.num_tokens;
  const T scale = static_cast<T>(shape.scale), cap = static_cast<T>(shape.soft_cap);
  std::fill(dq, dq + (queries.end - queries.first) * heads * dim, T(0));
  std::fill(dk, dk + n * kv * dim, T(0));
  std::fill(dv, dv + n * kv * dim, T(0));
  std::vector<T> of_k(static_cast<size_t>(n * dim)), of_v(of_k.size());  // one head's dk and dv
  for (int64_t h = 0; h < heads; ++h) {
    std::fill(of_k.begin(), of_k.end(), T(0));
    std::fill(of_v.begin(), of_v.end(), T(0));
    for (int64_t s = 0; s < forest.num_segments; ++s)
      for (int64_t t = std::max(forest.segment_start[s], queries.first);
           t < std::min(forest.segment_start[s + 1], queries.end); ++t) {
        const ReferencePath of_token = reference_path(forest, s, t);
        const std::vector<int64_t>& path = of_token.tokens;
        const int64_t seen = static_cast<int64_t>(path.size()), lo = of_token.oldest(shape.window),
                      row = t - queries.first, at = (row * heads + h) * dim;
        T parts[16] = {};
        for (int64_t d = 0; d < dim; ++d)
          parts[d % 16] = std::fma(dout[at + d], out[at + d], parts[d % 16]);
        for (int64_t width = 8; width > 0; width /= 2)
          for (int64_t i = 0; i < width; ++i) parts[i] += parts[i + width];
        const T delta = parts[0];
        for (int64_t j = lo; j < seen; ++j) {
          const int64_t token = path[static_cast<size_t>(j)], key = (token * kv + h / group) * dim;
          T score = 0, dp = 0, slope = scale;
          for (int64_t d = 0; d < dim; ++d) score = std::fma(q[at + d], k[key + d], score);
          for (int64_t d = 0; d < dim; ++d) dp = std::fma(dout[at + d], v[key + d], dp);
          score *= scale;
          if (cap > 0) {
            const T bent = Math::tanh(score / cap);
            score = cap * bent;
            slope *= 1 - bent * bent;
          }
          const T p = Math::exp(score - lse[row * heads + h]), ds = p * (dp - delta) * slope;
          T *to_k = of_k.data() + token * dim, *to_v = of_v.data() + token * dim;
          for (int64_t d = 0; d < dim; ++d) {
            dq[at + d] = std::fma(ds, k[key + d], dq[at + d]);
            to_k[d] = std::fma(ds, q[at + d], to_k[d]);
            to_v[d] = std::fma(p, dout[at + d], to_v[d]);
          }
        }
      }
    for (int64_t t = 0; t < n; ++t)
      for (int64_t d = 0; d < dim; ++d) {
        const int64_t to = (t * kv + h / group) * dim + d, from = t * dim + d;
        dk[to] += of_k[static_cast<size_t>(from)];
        dv[to] += of_v[static_cast<size_t>(from)];
      }
  }
}

}  // namespace temper::kernels
