// How two models' attention probabilities over a tile of tokens are compared.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "temper/ops/autograd.h"
#include "temper/ops/cpu/divergence.h"

namespace temper::ops {

// Query tokens [first, first + rows) of one segment; `keys` are the tokens of their path, and row r
// stands at keys[before + r].
struct MapTile {
  int64_t first, rows, before;
  at::Tensor keys;  // int64 [n]
  int64_t num_keys() const { return keys.numel(); }
};

// A comparison of a tile's maps, a [student's heads, rows, keys] and b [teacher's heads, rows,
// keys]: numbers of its rows, and their gradient times g with respect to a, which replaces it.
struct Cosine {
  template <class T>
  static void group_mean(const at::Tensor& b, int64_t group, int64_t h, int64_t row, int64_t count,
                         T* mean) {
    const int64_t n = b.size(2);
    std::fill(mean, mean + count, T(0));
    for (int64_t i = 0; i < group; ++i) {
      const T* from = values<T>(b) + ((h * group + i) * b.size(1) + row) * n;
      for (int64_t j = 0; j < count; ++j) mean[j] += from[j];
    }
    for (int64_t j = 0; j < count; ++j) mean[j] /= static_cast<T>(group);
  }
  template <class T>
  static void compare(const MapTile& t, const at::Tensor& a, const at::Tensor& b, const at::Tensor&,
                      T* value) {
    const int64_t heads = a.size(0), n = a.size(2), group = b.size(0) / heads;
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < t.rows; ++r) {
      std::vector<T> mean(static_cast<size_t>(n));
      T sum = 0, dots[3];
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t count = t.before + r + 1;
        group_mean(b, group, h, r, count, mean.data());
        kernels::divergence_kernels<T>().products(count, values<T>(a) + (h * t.rows + r) * n,
                                                  mean.data(), dots);
        sum += 1 - dots[0] / std::sqrt(dots[1] * dots[2]);
      }
      value[r] = sum / static_cast<T>(heads);
    }
  }
  template <class T>
  static void backward(const MapTile& t, at::Tensor& a, at::Tensor& b, const at::Tensor&,
                       const T* g, at::Tensor&) {
    const int64_t heads = a.size(0), n = a.size(2), group = b.size(0) / heads;
    T* data = a.mutable_data_ptr<T>();
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < t.rows; ++r) {
      std::vector<T> mean(static_cast<size_t>(n));
      T dots[3];
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t count = t.before + r + 1;
        T* row = data + (h * t.rows + r) * n;
        group_mean(b, group, h, r, count, mean.data());
        kernels::divergence_kernels<T>().products(count, row, mean.data(), dots);
        const T norm = std::sqrt(dots[1] * dots[2]), scale = -g[r] / static_cast<T>(heads);
        const T along = dots[0] / (norm * dots[1]);
        for (int64_t j = 0; j < count; ++j) row[j] = scale * (mean[j] / norm - along * row[j]);
      }
    }
  }
};

struct SquaredError {
  // b becomes Σ_s map[t, s] a_s - b_t.
  template <class T>
  static void errors(const MapTile& t, const at::Tensor& a, const at::Tensor& b,
                     const at::Tensor& map) {
    T* data = const_cast<at::Tensor&>(b).mutable_data_ptr<T>();
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
  template <class T>
  static void compare(const MapTile& t, const at::Tensor& a, const at::Tensor& b,
                      const at::Tensor& map, T* value) {
    errors<T>(t, a, b, map);
    const int64_t n = a.size(2);
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < t.rows; ++r) {
      T dots[3], sum = 0;
      for (int64_t h = 0; h < b.size(0); ++h) {
        const T* e = values<T>(b) + (h * t.rows + r) * n;
        kernels::divergence_kernels<T>().products(t.before + r + 1, e, e, dots);
        sum += dots[0];
      }
      value[r] = sum;
    }
  }
  template <class T>
  static void backward(const MapTile& t, at::Tensor& a, at::Tensor& b, const at::Tensor& map,
                       const T* g, at::Tensor& dmap) {
    errors<T>(t, a, b, map);
    const int64_t n = a.size(2), student = a.size(0), teacher = b.size(0);
    T* to_map = dmap.mutable_data_ptr<T>();
#pragma omp parallel for schedule(static)
    for (int64_t pair = 0; pair < teacher * student; ++pair)
      for (int64_t r = 0; r < t.rows; ++r) {
        T dots[3];
        kernels::divergence_kernels<T>().products(
            t.before + r + 1, values<T>(b) + (pair / student * t.rows + r) * n,
            values<T>(a) + (pair % student * t.rows + r) * n, dots);
        to_map[pair] += 2 * g[r] * dots[0];
      }
    T* data = a.mutable_data_ptr<T>();
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < t.rows; ++r)
      for (int64_t s = 0; s < student; ++s) {
        T* to = data + (s * t.rows + r) * n;
        std::fill(to, to + n, T(0));
        for (int64_t h = 0; h < teacher; ++h) {
          const T weight = 2 * g[r] * values<T>(map)[h * student + s];
          const T* e = values<T>(b) + (h * t.rows + r) * n;
          for (int64_t j = 0; j < n; ++j) to[j] = std::fma(weight, e[j], to[j]);
        }
      }
  }
};

}  // namespace temper::ops
