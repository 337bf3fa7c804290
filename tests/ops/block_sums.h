// Rounding::kBlocks (temper/ops/native/kernels/gemm.h), as it is defined.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "temper/ops/native/kernels/gemm.h"

namespace temper::kernels {

inline float without_denormal(float x) {
  return std::abs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x;
}
inline float as_read(float x) { return without_denormal(to_float(to_bfloat16(x))); }

// c[m, n] = a b, or c + a b; the bias is added last.
inline std::vector<float> block_sums(int64_t m, int64_t n, int64_t k, MatrixView<float> a,
                                     MatrixView<float> b, std::vector<float> c, bool accumulate,
                                     const float* bias = nullptr) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      float sum = accumulate ? without_denormal(c[static_cast<size_t>(i * n + j)]) : 0.0f;
      for (int64_t k0 = 0; k0 < k; k0 += 32) {
        float chain[2] = {0, 0};
        for (int64_t p = k0; p < std::min(k, k0 + 32); ++p)
          chain[p % 2] = without_denormal(
              std::fma(as_read(a.data[i * a.row_stride + p * a.col_stride]),
                       as_read(b.data[p * b.row_stride + j * b.col_stride]), chain[p % 2]));
        sum = without_denormal(sum + without_denormal(chain[0] + chain[1]));
      }
      if (bias) sum = without_denormal(sum + without_denormal(bias[j]));
      c[static_cast<size_t>(i * n + j)] = sum;
    }
  return c;
}

}  // namespace temper::kernels
