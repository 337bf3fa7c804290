// Attention maps of a tile of query tokens and their comparisons, on the processor.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "temper/base/exact_math.h"
#include "temper/ops/native/head_vectors.h"
#include "temper/ops/native/kernels/divergence.h"
#include "temper/ops/native/native.h"

namespace temper::ops {
namespace {
using kernels::divergence_kernels;
using kernels::row_kernels;

int64_t kv_head(const AttentionSpec& s, int64_t head) {
  return head / (s.num_heads / s.num_kv_heads);
}
at::Tensor queries_of(const HeadVectors& x, const MapTile& t, int64_t head) {
  return x.q.narrow(0, t.first, t.rows).select(1, head).contiguous();
}
at::Tensor keys_of(const AttentionSpec& s, const HeadVectors& x, const MapTile& t, int64_t head) {
  return x.k.select(1, kv_head(s, head)).index_select(0, t.keys);
}

// The first key in reach of a row, and how many are.
struct Reach {
  int64_t first, count;
};
Reach reach(const AttentionSpec& s, const MapTile& t, int64_t row) {
  const int64_t last = t.before + row,
                first = s.window > 0 ? std::max<int64_t>(0, last - s.window + 1) : 0;
  return {first, last - first + 1};
}

// The mean of the teacher's heads that stand for the student's head h, over the first keys.
template <class T>
void group_mean(const at::Tensor& b, int64_t group, int64_t h, int64_t row, int64_t count,
                T* mean) {
  const int64_t n = b.size(2);
  std::fill(mean, mean + count, T(0));
  for (int64_t i = 0; i < group; ++i) {
    const T* from = values<T>(b) + ((h * group + i) * b.size(1) + row) * n;
    for (int64_t j = 0; j < count; ++j) mean[j] += from[j];
  }
  for (int64_t j = 0; j < count; ++j) mean[j] /= static_cast<T>(group);
}

// b becomes Σ_s map[t, s] a_s - b_t.
template <class T>
void map_errors(const MapTile& t, const at::Tensor& a, at::Tensor& b, const at::Tensor& map) {
  T* data = b.mutable_data_ptr<T>();
  const int64_t n = a.size(2), student = a.size(0), teacher = b.size(0);
#pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < t.rows; ++r)
    for (int64_t h = 0; h < teacher; ++h) {
      T* to = data + (h * t.rows + r) * n;
      for (int64_t j = 0; j < n; ++j) to[j] = -to[j];
      for (int64_t s = 0; s < student; ++s) {
        const T weight = values<T>(map)[h * student + s];
        const T* from = values<T>(a) + (s * t.rows + r) * n;
        for (int64_t j = 0; j < n; ++j) to[j] = std::fma(weight, from[j], to[j]);
      }
    }
}

// Takes a head's sink into the softmax of `count` scores, of which `max` was the largest.
template <class T>
void share_with_sink(T sink, T max, int64_t count, T* probability) {
  const double largest = static_cast<double>(*std::max_element(probability, probability + count)),
               of_sink = exact::quick_exp(static_cast<double>(sink) - static_cast<double>(max));
  const T share = static_cast<T>(1 / (1 + of_sink * largest));
  for (int64_t j = 0; j < count; ++j) probability[j] *= share;
}

// One head's scores [rows, keys] as they lie, to probabilities; `capped` gets what is in between.
template <class T>
void scores_to_probabilities(const AttentionSpec& s, const MapTile& t, int64_t head,
                             at::Tensor& scores, at::Tensor capped) {
  const int64_t n = t.num_keys();
  T* data = scores.mutable_data_ptr<T>();
  const T scale = static_cast<T>(s.scale);
#pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < t.rows; ++r) {
    T* row = data + r * n;
    const Reach in = reach(s, t, r);
    for (int64_t j = 0; j < n; ++j) row[j] *= scale;
    if (s.soft_cap > 0)
      row_kernels<T>().soft_cap(in.count, static_cast<T>(s.soft_cap), row + in.first);
  }
  if (capped.defined()) capped.copy_(scores);
#pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < t.rows; ++r) {
    T* row = data + r * n;
    const Reach in = reach(s, t, r);
    const T max = *std::max_element(row + in.first, row + in.first + in.count);
    divergence_kernels<T>().softmax(in.count, row + in.first);
    if (s.sinks.defined()) share_with_sink(values<T>(s.sinks)[head], max, in.count, row + in.first);
    std::fill(row, row + in.first, T(0));
    std::fill(row + in.first + in.count, row + n, T(0));
  }
}

// dp of one head [rows, keys] becomes the gradient of its products q kᵀ.
template <class T>
void probabilities_to_scores(const AttentionSpec& s, const MapTile& t, const T* probability,
                             const T* score, at::Tensor& dp) {
  const int64_t n = t.num_keys();
  T* data = dp.mutable_data_ptr<T>();
  const T scale = static_cast<T>(s.scale), cap = static_cast<T>(s.soft_cap);
#pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < t.rows; ++r) {
    const Reach in = reach(s, t, r);
    T* row = data + r * n;
    std::fill(row, row + in.first, T(0));
    std::fill(row + in.first + in.count, row + n, T(0));
    divergence_kernels<T>().softmax_backward(in.count, probability + r * n + in.first,
                                             row + in.first);
    for (int64_t j = in.first; j < in.first + in.count; ++j) {
      const T bend = score ? score[r * n + j] / cap : T(0);
      row[j] *= scale * (1 - bend * bend);
    }
  }
}

}  // namespace

HeadVectors NativeBackend::head_vectors(const AttentionSpec& s, const RotaryTable& rotary,
                                        const Forest& forest, const at::Tensor& q,
                                        const at::Tensor& k) const {
  const int64_t n = forest.num_tokens();
  return dispatch(q, [&](auto zero) -> HeadVectors {
    using T = decltype(zero);
    const TableRows rows(rotary, forest.position);
    return {prepare_queries<T>(s, rotary, rows.all(), q).view({n, s.num_heads, s.head_dim}),
            prepare_keys<T>(s, rotary, rows.all(), k).view({n, s.num_kv_heads, s.head_dim})};
  });
}

AttentionGradients NativeBackend::head_vectors_backward(const AttentionSpec& s,
                                                        const RotaryTable& rotary,
                                                        const Forest& forest, const at::Tensor& q,
                                                        const at::Tensor& k,
                                                        HeadVectors gradients) const {
  const auto zeros = [](const at::Tensor& x) {
    return x.defined() ? at::zeros_like(x) : at::Tensor();
  };
  AttentionGradients d{{}, {}, {}, zeros(s.q_norm), zeros(s.k_norm)};
  dispatch(q, [&](auto zero) {
    using T = decltype(zero);
    const TableRows rows(rotary, forest.position);
    d.q = prepare_queries_backward<T>(s, rotary, rows.all(), q, gradients.q.view_as(q), d.q_norm);
    d.k = prepare_backward<T>(s, rotary, rows.all(), s.num_kv_heads, k, s.k_norm,
                              gradients.k.view_as(k), d.k_norm);
  });
  return d;
}

TileMaps NativeBackend::maps(const AttentionSpec& s, const HeadVectors& heads, const MapTile& tile,
                             bool with_capped) const {
  TileMaps out;
  out.probability = at::empty({s.num_heads, tile.rows, tile.num_keys()}, heads.q.options());
  if (with_capped && s.soft_cap > 0) out.capped = at::empty_like(out.probability);
  for (int64_t h = 0; h < s.num_heads; ++h) {
    at::Tensor scores = out.probability.select(0, h);
    product({queries_of(heads, tile, h)}, {keys_of(s, heads, tile, h), true}, scores, false, {},
            {});
    dispatch(scores, [&](auto zero) {
      scores_to_probabilities<decltype(zero)>(
          s, tile, h, scores, out.capped.defined() ? out.capped.select(0, h) : at::Tensor());
    });
  }
  return out;
}

void NativeBackend::maps_backward(const AttentionSpec& s, const HeadVectors& heads,
                                  const MapTile& t, const TileMaps& maps, at::Tensor dp,
                                  HeadVectors& gradients) const {
  const int64_t n = t.num_keys();
  for (int64_t h = 0; h < s.num_heads; ++h) {
    at::Tensor ds = dp.select(0, h);
    dispatch(ds, [&](auto zero) {
      using T = decltype(zero);
      probabilities_to_scores<T>(
          s, t, values<T>(maps.probability) + h * t.rows * n,
          maps.capped.defined() ? values<T>(maps.capped) + h * t.rows * n : nullptr, ds);
    });
    at::Tensor to_q = at::empty({t.rows, s.head_dim}, heads.q.options());
    product({ds}, {keys_of(s, heads, t, h)}, to_q, false, {}, {});
    gradients.q.narrow(0, t.first, t.rows).select(1, h).add_(to_q);
    at::Tensor to_k = at::empty({n, s.head_dim}, heads.q.options());
    product({ds, true}, {queries_of(heads, t, h)}, to_k, false, {}, {});
    gradients.k.select(1, kv_head(s, h)).index_add_(0, t.keys, to_k);
  }
}

at::Tensor NativeBackend::map_cosine(const MapTile& t, const at::Tensor& a,
                                     const at::Tensor& b) const {
  const int64_t heads = a.size(0), n = a.size(2), group = b.size(0) / heads;
  at::Tensor value = at::empty({t.rows}, a.options());
  dispatch(a, [&](auto zero) {
    using T = decltype(zero);
    T* to = value.mutable_data_ptr<T>();
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < t.rows; ++r) {
      std::vector<T> mean(static_cast<size_t>(n));
      T sum = 0, dots[3];
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t count = t.before + r + 1;
        group_mean(b, group, h, r, count, mean.data());
        divergence_kernels<T>().products(count, values<T>(a) + (h * t.rows + r) * n, mean.data(),
                                         dots);
        sum += 1 - dots[0] / std::sqrt(dots[1] * dots[2]);
      }
      to[r] = sum / static_cast<T>(heads);
    }
  });
  return value;
}

at::Tensor NativeBackend::map_cosine_backward(const MapTile& t, const at::Tensor& a,
                                              const at::Tensor& b, const at::Tensor& g) const {
  const int64_t heads = a.size(0), n = a.size(2), group = b.size(0) / heads;
  at::Tensor da = a.clone();
  dispatch(a, [&](auto zero) {
    using T = decltype(zero);
    T* data = da.mutable_data_ptr<T>();
    const T* slope = values<T>(g);
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < t.rows; ++r) {
      std::vector<T> mean(static_cast<size_t>(n));
      T dots[3];
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t count = t.before + r + 1;
        T* row = data + (h * t.rows + r) * n;
        group_mean(b, group, h, r, count, mean.data());
        divergence_kernels<T>().products(count, row, mean.data(), dots);
        const T norm = std::sqrt(dots[1] * dots[2]), scale = -slope[r] / static_cast<T>(heads);
        const T along = dots[0] / (norm * dots[1]);
        for (int64_t j = 0; j < count; ++j) row[j] = scale * (mean[j] / norm - along * row[j]);
      }
    }
  });
  return da;
}

at::Tensor NativeBackend::map_squared_error(const MapTile& t, const at::Tensor& a, at::Tensor b,
                                            const at::Tensor& map) const {
  const int64_t n = a.size(2);
  at::Tensor value = at::empty({t.rows}, a.options());
  dispatch(a, [&](auto zero) {
    using T = decltype(zero);
    map_errors<T>(t, a, b, map);
    T* to = value.mutable_data_ptr<T>();
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < t.rows; ++r) {
      T dots[3], sum = 0;
      for (int64_t h = 0; h < b.size(0); ++h) {
        const T* e = values<T>(b) + (h * t.rows + r) * n;
        divergence_kernels<T>().products(t.before + r + 1, e, e, dots);
        sum += dots[0];
      }
      to[r] = sum;
    }
  });
  return value;
}

at::Tensor NativeBackend::map_squared_error_backward(const MapTile& t, const at::Tensor& a,
                                                     at::Tensor b, const at::Tensor& map,
                                                     const at::Tensor& g, at::Tensor& dmap) const {
  const int64_t n = a.size(2), student = a.size(0), teacher = b.size(0);
  at::Tensor da = at::zeros_like(a);
  dispatch(a, [&](auto zero) {
    using T = decltype(zero);
    map_errors<T>(t, a, b, map);
    const T* slope = values<T>(g);
    T* to_map = dmap.mutable_data_ptr<T>();
#pragma omp parallel for schedule(static)
    for (int64_t pair = 0; pair < teacher * student; ++pair)
      for (int64_t r = 0; r < t.rows; ++r) {
        T dots[3];
        divergence_kernels<T>().products(t.before + r + 1,
                                         values<T>(b) + (pair / student * t.rows + r) * n,
                                         values<T>(a) + (pair % student * t.rows + r) * n, dots);
        to_map[pair] += 2 * slope[r] * dots[0];
      }
    T* data = da.mutable_data_ptr<T>();
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < t.rows; ++r)
      for (int64_t s = 0; s < student; ++s) {
        T* to = data + (s * t.rows + r) * n;
        for (int64_t h = 0; h < teacher; ++h) {
          const T weight = 2 * slope[r] * values<T>(map)[h * student + s];
          const T* e = values<T>(b) + (h * t.rows + r) * n;
          for (int64_t j = 0; j < n; ++j) to[j] = std::fma(weight, e[j], to[j]);
        }
      }
  });
  return da;
}

}  // namespace temper::ops
