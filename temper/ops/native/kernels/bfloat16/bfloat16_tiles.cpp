#include "temper/ops/native/kernels/bfloat16/bfloat16_tiles.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

#include "temper/ops/native/kernels/bfloat16/bfloat16_draws.h"
#include "temper/ops/native/kernels/simd.h"

#if defined(TEMPER_AMX) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace temper::kernels {
namespace {

// The processor has the instructions and the system lets this process use their registers.
bool can_use_amx() {
#if defined(TEMPER_AMX) && defined(__linux__)
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XTILEDATA
  return allows_avx512() && __builtin_cpu_supports("amx-tile") &&
         __builtin_cpu_supports("amx-bf16") && __builtin_cpu_supports("avx512bw") &&
         syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

// Rounding::kBlocks of one row of tiles and one column.
void sum_blocks(int64_t blocks, const uint32_t* a, const uint32_t* b, int64_t b_row, float& c) {
  const auto upper = [](uint32_t pair) {
    return flushed(std::bit_cast<float>(pair & 0xffff0000u));
  };
  const auto lower = [](uint32_t pair) { return flushed(std::bit_cast<float>(pair << 16)); };
  for (int64_t block = 0; block < blocks; ++block) {
    float even = 0, odd = 0;
    for (int64_t p = 0; p < kMatrixPairs; ++p, b += b_row) {
      even = flushed(std::fma(upper(a[p]), upper(*b), even));
      odd = flushed(std::fma(lower(a[p]), lower(*b), odd));
    }
    a += kMatrixTile;
    c = flushed(flushed(c) + flushed(even + odd));
  }
}

}  // namespace

bool keeps_block_sums(const MatrixInstructions& instructions) {
  constexpr int64_t kSide = 2 * kMatrixSide;
  BFloat16Draws draws;
  bool same = true;
  instructions.start();
  for (int trial = 0; trial < 8 && same; ++trial) {
    const int64_t row_tiles = 1 + trial % 2, rows = row_tiles * kMatrixSide, blocks = 1 + trial % 3,
                  pairs = blocks * kMatrixPairs, a_rows = blocks * kMatrixTile,
                  depth = trial == 7 ? 9 : kBlockDepth;
    const bool from_c = trial % 4 != 3;
    std::vector<uint32_t> a(static_cast<size_t>(rows * pairs)),
        b(static_cast<size_t>(pairs * kSide));
    // Sums of one product each may underflow; those of many hardly do.
    const bool sparse = trial >= 4;
    for (size_t i = 0; i < a.size(); ++i)
      if (!sparse || i % kMatrixPairs == 3) a[i] = uint32_t{draws.next()} << 16 | draws.next();
    for (int64_t i = 0; i < blocks; ++i) {
      std::vector<BFloat16Bits> panel(static_cast<size_t>(kBlockDepth * kSide));
      for (BFloat16Bits& x : panel) x = draws.next();
      uint32_t* of = b.data() + i * kMatrixPairs * kSide;
      instructions.pair_columns(depth, panel.data(), of);
      const auto at = [&](int64_t k, int64_t j) {
        return k < depth ? uint32_t{panel[static_cast<size_t>(k * kSide + j)]} : 0u;
      };
      for (int64_t p = 0; p < kMatrixPairs; ++p)
        for (int64_t j = 0; j < kSide; ++j)
          same = same && of[p * kSide + j] == (at(2 * p, j) << 16 | at(2 * p + 1, j));
    }
    std::vector<float> c(static_cast<size_t>(rows * kSide)), expected;
    for (float& x : c) x = to_float(draws.next());
    expected = c;
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < kSide; ++j) {
        float& sum = expected[static_cast<size_t>(i * kSide + j)];
        if (!from_c) sum = 0;
        sum_blocks(blocks, a.data() + i / kMatrixSide * a_rows + i % kMatrixSide * kMatrixPairs,
                   b.data() + j, kSide, sum);
      }
    instructions.product(row_tiles, blocks, a.data(), a_rows, b.data(), c.data(), kSide, from_c);
    same = same && std::memcmp(c.data(), expected.data(), c.size() * sizeof(float)) == 0;
  }
  instructions.stop();
  return same;
}

namespace {

// One product of the instructions, of rows and columns that may not fill its tiles.
void multiply_tiles(const MatrixInstructions& instructions, int64_t rows, int64_t columns,
                    int64_t blocks, const uint32_t* a, int64_t a_rows, const uint32_t* b, float* c,
                    int64_t ldc, bool from_c) {
  constexpr int64_t kSide = 2 * kMatrixSide;
  const int64_t row_tiles = rows > kMatrixSide ? 2 : 1;
  if (rows == row_tiles * kMatrixSide && columns == kSide)
    return instructions.product(row_tiles, blocks, a, a_rows, b, c, ldc, from_c);
  alignas(64) float aside[kSide * kSide] = {};
  for (int64_t i = 0; i < rows && from_c; ++i) std::copy_n(c + i * ldc, columns, aside + i * kSide);
  instructions.product(row_tiles, blocks, a, a_rows, b, aside, kSide, from_c);
  for (int64_t i = 0; i < rows; ++i) std::copy_n(aside + i * kSide, columns, c + i * ldc);
}

}  // namespace

void multiply_by_matrices(const MatrixInstructions& instructions, int64_t rows, int64_t columns,
                          int64_t k, MatrixView<float> a, const PanelOf& right, float* c,
                          int64_t ldc, bool accumulate, MatrixScratch& scratch) {
  constexpr int64_t kSide = 2 * kMatrixSide;
  // As far down k as the rows' pairs, in whole tiles, have room.
  const int64_t tiled = (rows + kMatrixSide - 1) / kMatrixSide * kMatrixSide,
                at_once = kMatrixLeft / tiled / kMatrixPairs * kBlockDepth;
  instructions.start();
  for (int64_t k0 = 0; k0 < k; k0 += at_once) {
    const int64_t depth = std::min(at_once, k - k0),
                  row_pairs = (depth + kBlockDepth - 1) / kBlockDepth * kMatrixTile;
    if (scratch.of != a.data)
      pack_tiles({a.data + k0 * a.col_stride, a.row_stride, a.col_stride}, rows, depth,
                 scratch.left);
    scratch.of = depth == k ? a.data : nullptr;
    for (int64_t j = 0; j < columns; j += kSide)
      for (int64_t k1 = 0; k1 < depth; k1 += kMatrixDepth) {
        const int64_t part = std::min(kMatrixDepth, depth - k1),
                      blocks = (part + kBlockDepth - 1) / kBlockDepth;
        const BFloat16Bits* panel = right(j, k0 + k1, part);
        for (int64_t i = 0; i < blocks; ++i)
          instructions.pair_columns(std::min(kBlockDepth, part - i * kBlockDepth),
                                    panel + i * kBlockDepth * kSide,
                                    scratch.right + i * kMatrixPairs * kSide);
        for (int64_t i = 0; i < rows; i += kSide)
          multiply_tiles(
              instructions, std::min(kSide, rows - i), std::min(kSide, columns - j), blocks,
              scratch.left + i / kMatrixSide * row_pairs + k1 / kBlockDepth * kMatrixTile,
              row_pairs, scratch.right, c + i * ldc + j, ldc, accumulate || k0 + k1 > 0);
      }
  }
  instructions.stop();
}

Bfloat16Products matrix_products() {
  static const Bfloat16Products found = [] {
    if (!can_use_amx()) return Bfloat16Products::kNoInstruction;
    if (keeps_block_sums(kAmx)) return Bfloat16Products::kInstructions;
    std::fputs(
        "warning: this CPU's AMX sums in another order than model.arithmetic: amx says; its "
        "products are computed in float32 instead\n",
        stderr);
    return Bfloat16Products::kOtherBits;
  }();
  return found;
}

}  // namespace temper::kernels
