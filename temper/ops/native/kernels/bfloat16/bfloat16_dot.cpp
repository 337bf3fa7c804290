#include "temper/ops/native/kernels/bfloat16/bfloat16_dot.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "temper/ops/native/kernels/bfloat16/bfloat16_draws.h"
#include "temper/ops/native/kernels/simd.h"

namespace temper::kernels {
namespace {

bool processor_has_avx512_bf16() {
#if defined(__x86_64__) && defined(TEMPER_AVX512_BF16)
  return allows_avx512() && __builtin_cpu_supports("avx512bf16") &&
         __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
#else
  return false;
#endif
}

}  // namespace

bool keeps_the_chain(DotTile tile) {
  BFloat16Draws values;
  for (int rows = 1; rows <= kDotRows; ++rows) {
    for (const long depth : {1L, 2L, 7L, 64L}) {
      const long pairs = (depth + 1) / 2;
      std::vector<BFloat16Bits> b(static_cast<size_t>(depth * kDotColumns));
      std::vector<uint32_t> a(static_cast<size_t>(rows * pairs));
      for (BFloat16Bits& x : b) x = values.next();
      for (size_t i = 0; i < a.size(); ++i) {
        const bool alone =
            depth % 2 == 1 && i % static_cast<size_t>(pairs) + 1 == static_cast<size_t>(pairs);
        const uint32_t first = values.next();
        a[i] = first << 16 | (alone ? 0x8000u : values.next());
      }
      std::vector<float> c(static_cast<size_t>(rows * kDotColumns)), chain = c;
      for (float& x : c) x = to_float(values.next());
      chain = c;
      const bool from_c = depth != 2;
      for (long i = 0; i < rows; ++i)
        for (long j = 0; j < kDotColumns; ++j) {
          float& sum = chain[static_cast<size_t>(i * kDotColumns + j)];
          if (!from_c) sum = 0;
          for (long k = 0; k < depth; ++k) {
            const uint32_t pair = a[static_cast<size_t>(i * pairs + k / 2)];
            const float left = std::bit_cast<float>(k % 2 == 0 ? pair & 0xffff0000u : pair << 16);
            const float right = to_float(b[static_cast<size_t>(k * kDotColumns + j)]);
            sum = flushed(std::fma(flushed(left), flushed(right), flushed(sum)));
          }
        }
      tile(rows, depth, a.data(), pairs, b.data(), c.data(), kDotColumns, from_c);
      if (std::memcmp(c.data(), chain.data(), c.size() * sizeof(float)) != 0) return false;
    }
  }
  return true;
}

void multiply_by_dot(DotTile tile, int64_t rows, int64_t columns, int64_t k, MatrixView<float> a,
                     const BFloat16Bits* b, int64_t panel_stride, float* c, int64_t ldc,
                     bool accumulate, DotLeft& left) {
  const int64_t tiles = (rows + kDotRows - 1) / kDotRows, height = (rows + tiles - 1) / tiles;
  // As far down k as the rows' pairs have room: each block loads and stores its sums once more.
  const int64_t at_once = kDotPairs / rows * 2;
  for (int64_t k0 = 0; k0 < k; k0 += at_once) {
    const int64_t depth = std::min(at_once, k - k0), pairs = (depth + 1) / 2;
    const bool from_c = accumulate || k0 > 0;
    if (left.of != a.data)
      pack_pairs({a.data + k0 * a.col_stride, a.row_stride, a.col_stride}, rows, depth, left.pairs);
    left.of = depth == k ? a.data : nullptr;
    for (int64_t j = 0; j < columns; j += kDotColumns) {
      const BFloat16Bits* panel = b + j / kDotColumns * panel_stride + k0 * kDotColumns;
      const int64_t width = std::min<int64_t>(kDotColumns, columns - j);
      for (int64_t i = 0; i < rows; i += height) {
        const int count = static_cast<int>(std::min(height, rows - i));
        float* to = c + i * ldc + j;
        if (width == kDotColumns) {
          tile(count, depth, left.pairs + i * pairs, pairs, panel, to, ldc, from_c);
          continue;
        }
        // The last panel is padded: compute it aside and keep the columns that exist.
        alignas(64) float aside[kDotRows * kDotColumns] = {};
        for (int64_t r = 0; r < count && from_c; ++r)
          std::copy_n(to + r * ldc, width, aside + r * kDotColumns);
        tile(count, depth, left.pairs + i * pairs, pairs, panel, aside, kDotColumns, from_c);
        for (int64_t r = 0; r < count; ++r)
          std::copy_n(aside + r * kDotColumns, width, to + r * ldc);
      }
    }
  }
}

Bfloat16Products bfloat16_products() {
  static const Bfloat16Products found = [] {
    if (!processor_has_avx512_bf16()) return Bfloat16Products::kNoInstruction;
    if (keeps_the_chain(avx512_dot_tile))
      return is_quicker(avx512_dot_tile) ? Bfloat16Products::kInstructions
                                         : Bfloat16Products::kSlower;
    std::fputs(
        "warning: this CPU's AVX512-BF16 sums in another order than model.arithmetic: fast "
        "says; its products are computed in float32 instead\n",
        stderr);
    return Bfloat16Products::kOtherBits;
  }();
  return found;
}

}  // namespace temper::kernels
