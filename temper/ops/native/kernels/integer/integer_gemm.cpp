#include "temper/ops/native/kernels/integer/integer_gemm.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "temper/ops/native/kernels/processors.h"
#include "temper/ops/native/kernels/simd.h"

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "temper/ops/native/kernels/integer/integer_gemm.cpp"
#include "temper/ops/native/kernels/targets.h"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "temper/ops/native/kernels/integer/expand-inl.h"
#include "temper/ops/native/kernels/tile-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace temper::kernels::HWY_NAMESPACE {

// One block. Loops that the compiler makes vectors of: the largest magnitude by its bits, as those
// of numbers that are not negative have their order, and NaN's and infinity's lie above all others;
// integers as the lower bits of a float that has no fraction.
void RoundBlock(const float* x, int64_t count, int8_t* q, float* scale, int32_t* sum) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; ++i)
    largest = std::max(largest, std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu);
  const float s = std::bit_cast<float>(largest) / 127.0f;
  *sum = 0;
  *scale = s;
  if (largest >= 0x7f800000u || s == 0) {
    std::fill(q, q + count, int8_t{0});
    if (s != 0) *scale = std::numeric_limits<float>::quiet_NaN();
    return;
  }
  constexpr float kWhole = 12582912.0f;  // 1.5 * 2^23: numbers near it have no fraction
  int32_t total = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int32_t near = std::bit_cast<int32_t>(x[i] / s + kWhole) - std::bit_cast<int32_t>(kWhole);
    const int32_t kept = std::min(std::max(near, -127), 127);  // s is rounded, the more where tiny
    q[i] = static_cast<int8_t>(kept);
    total += kept;
  }
  *sum = total;
}

void RoundRows(MatrixView<float> a, RoundedRows& to) {
  const bool apart = a.col_stride != 1;
#pragma omp parallel for schedule(static) if (to.rows * to.width > 32768)
  for (int64_t r = 0; r < to.rows; ++r) {
    float aside[ops::kRoundingBlock];
    int64_t b = r * to.blocks;
    for (int64_t group = 0; group < to.width; group += to.group)
      for (int64_t i = group; i < group + to.group; i += ops::kRoundingBlock, ++b) {
        const int64_t count = std::min(ops::kRoundingBlock, group + to.group - i);
        const float* x = a.data + r * a.row_stride + i * a.col_stride;
        for (int64_t j = 0; apart && j < count; ++j) aside[j] = x[j * a.col_stride];
        RoundBlock(apart ? aside : x, count, to.values.get() + r * to.stride + i,
                   to.scales.get() + b, to.sums.get() + b);
      }
  }
}

// The definition.
void ScalarPanel(const IntegerPanel& p) {
  for (int64_t row = 0; row < p.rows; ++row)
    for (int64_t r = 0; r < kPanel; ++r) {
      float y = 0;
      for (int64_t i = 0, b = 0; i < p.width; ++b) {
        const int64_t group = i / p.group,
                      end = std::min<int64_t>(i + kIntegerBlock, (group + 1) * p.group);
        const float s = p.x_scales[row * p.blocks + b], scale = p.scales[group * kPanel + r],
                    offset = p.offsets ? p.offsets[group * kPanel + r] : 0;
        const int32_t of_x = p.x_sums[row * p.blocks + b];
        int32_t sum = p.zero_points ? -static_cast<int32_t>(offset) * of_x : 0;
        for (; i < end; ++i) {
          int32_t w;
          if (p.bits == 4) {
            constexpr int64_t kHalf = kPanel / 2;
            const uint8_t both = p.codes[four_bits_place(kPanel, p.group, i, r % kHalf)];
            w = p.table[r < kHalf ? both & 15 : both >> 4];
          } else {
            w = static_cast<int8_t>(p.codes[i * kPanel + r]);
          }
          sum += w * p.x[row * p.x_row + i];
        }
        y = y + static_cast<float>(sum) * ((s * p.unit) * scale);
        if (p.offsets && !p.zero_points) y = y - static_cast<float>(of_x) * (s * offset);
      }
      p.c[row * kPanel + r] = y;
    }
}

const IntegerInstructions kScalar{"scalar", ScalarPanel, false};

#if defined(__aarch64__) && TEMPER_HAS_FMA
bool has_dot_product() {
#if defined(__linux__)
  return (getauxval(AT_HWCAP) & 1ul << 20) != 0;  // HWCAP_ASIMDDP
#elif defined(__APPLE__)
  return true;
#else
  return false;
#endif
}
#endif

const IntegerInstructions& Instructions([[maybe_unused]] IntegerChoice choice) {
  if (choice == IntegerChoice::kScalar) return kScalar;
#if defined(__aarch64__) && TEMPER_HAS_FMA
  if (choice == IntegerChoice::kBest && kNeonDot.multiply && has_dot_product()) return kNeonDot;
  if (kNeon.multiply) return kNeon;
#elif defined(__x86_64__) && (HWY_TARGET == HWY_AVX2 || HWY_TARGET <= HWY_AVX3)
  const bool best = choice == IntegerChoice::kBest && allows_avx512();
  if constexpr (kPanel == 32) {
    if (best && kAvx512Vnni.multiply && __builtin_cpu_supports("avx512vnni")) return kAvx512Vnni;
    if (kAvx512.multiply) return kAvx512;
  } else {
    if (best && kAvxVnni.multiply && __builtin_cpu_supports("avxvnni")) return kAvxVnni;
    if (kAvx2.multiply) return kAvx2;
  }
#endif
  return kScalar;
}

const char* InstructionsName() { return Instructions(IntegerChoice::kBest).name; }

int64_t PanelsOfThread(int64_t panels, int64_t row_blocks, int64_t threads) {
  if (threads == 1) return panels;
  // A few tasks a thread, so that none waits long for the last one's.
  const int64_t wanted = row_blocks == 1 ? threads : std::max<int64_t>(4 * threads / row_blocks, 1);
  return (panels + wanted - 1) / wanted;
}

constexpr int64_t kIntegerRows = 120;  // of a task

struct alignas(64) IntegerScratch {
  unsigned char codes[kIntegerScratch];
  float sums[kIntegerRows * kPanel];
};

// Rows [first, first + rows) by panels [begin, end).
void MultiplyTask(const RoundedRows& x, int64_t first, int64_t rows, const QuantizedMatrix& w,
                  int64_t begin, int64_t end, float* c, int64_t ldc, const float* bias,
                  const IntegerInstructions& by) {
  thread_local IntegerScratch scratch;
  thread_local ExpandedPanel expanded;
  static constexpr auto kIntegers = [] {
    std::array<ops::CodeIntegers, ops::kWeightFormats.size()> all{};
    for (size_t i = 0; i < all.size(); ++i) all[i] = ops::integers_of(static_cast<WeightFormat>(i));
    return all;
  }();
  const ops::FormatRow& format = row_of(w.format);
  const ops::CodeIntegers& integers = kIntegers[static_cast<size_t>(w.format)];
  const bool expands = format.kind == ops::CodeKind::kLinear && !by.planes;
  IntegerPanel p{.bits = expands ? 8 : format.bits,
                 .table = integers.table.data(),
                 .first = format.first,
                 .unit = integers.unit,
                 .zero_points = format.offset == ops::OffsetKind::kZero,
                 .width = w.width,
                 .group = w.group,
                 .rows = rows,
                 .x = x.values.get() + first * x.stride,
                 .x_row = x.stride,
                 .x_scales = x.scales.get() + first * x.blocks,
                 .x_sums = x.sums.get() + first * x.blocks,
                 .blocks = x.blocks,
                 .c = scratch.sums,
                 .scratch = scratch.codes};
  for (int64_t panel = begin; panel < end; ++panel) {
    const int64_t j = panel * kPanel, columns = std::min<int64_t>(kPanel, w.rows - j);
    p.codes = expands ? expanded.codes_of(w, panel)
                      : w.codes + panel * (w.width * kPanel * format.bits / 8);
    p.scales = expanded.numbers_of(w, w.scales, panel, expanded.scales);
    p.offsets = expanded.numbers_of(w, w.offsets, panel, expanded.offsets);
    by.multiply(p);
    for (int64_t i = 0; i < rows; ++i) {
      const float* from = scratch.sums + i * kPanel;
      float* to = c + i * ldc + j;
      if (bias)
        for (int64_t k = 0; k < columns; ++k) to[k] = from[k] + bias[j + k];
      else
        std::copy_n(from, columns, to);
    }
  }
}

void MultiplyIntegers(const RoundedRows& x, int64_t first, int64_t rows, const QuantizedMatrix& w,
                      float* c, int64_t ldc, const float* bias, IntegerChoice choice) {
  if (rows == 0 || w.rows == 0) return;
  const IntegerInstructions& by = in_fours(w.group) ? Instructions(choice) : kScalar;
  if (!omp_in_parallel()) take_processors();
  const int64_t threads = omp_in_parallel() ? 1 : omp_get_max_threads(),
                panels = (w.rows + kPanel - 1) / kPanel;
  // Rows whose activations stay in the second-level cache.
  const int64_t most = std::clamp<int64_t>(384 * 1024 / w.width / 24 * 24, 24, kIntegerRows),
                row_blocks = (rows + most - 1) / most,
                rows_per = (rows + row_blocks - 1) / row_blocks,
                panels_per = PanelsOfThread(panels, row_blocks, threads),
                column_blocks = (panels + panels_per - 1) / panels_per;
  const bool parallel =
      threads > 1 && (rows * w.rows * w.width > 4'000'000 || w.rows * w.width > 200'000);
#pragma omp parallel for schedule(dynamic) collapse(2) if (parallel)
  for (int64_t r = 0; r < row_blocks; ++r)
    for (int64_t q = 0; q < column_blocks; ++q) {
      const int64_t i = r * rows_per, count = std::min(rows_per, rows - i);
      if (count <= 0) continue;
      MultiplyTask(x, first + i, count, w, q * panels_per, std::min(panels, (q + 1) * panels_per),
                   c + i * ldc, ldc, bias, by);
    }
}

}  // namespace temper::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace temper::kernels {
HWY_EXPORT(RoundRows);
HWY_EXPORT(MultiplyIntegers);
HWY_EXPORT(InstructionsName);

static_assert(kIntegerBlock == ops::kRoundingBlock);

RoundedRows round_rows(int64_t rows, MatrixView<float> a, int64_t width, int64_t group) {
  const int64_t blocks = ops::rounding_blocks(width, group),
                stride = (width + 63) / 64 * 64 + (rows > 1 ? 64 : 0);
  const auto count = [](int64_t n) { return static_cast<size_t>(n); };
  RoundedRows to{rows,
                 width,
                 group,
                 blocks,
                 stride,
                 std::make_unique_for_overwrite<int8_t[]>(count(rows * stride)),
                 std::make_unique_for_overwrite<float[]>(count(rows * blocks)),
                 std::make_unique_for_overwrite<int32_t[]>(count(rows * blocks))};
  HWY_DYNAMIC_DISPATCH(RoundRows)(a, to);
  return to;
}

void multiply_integers(const RoundedRows& x, int64_t first, int64_t rows, const QuantizedMatrix& w,
                       float* c, int64_t ldc, const float* bias, IntegerChoice choice) {
  HWY_DYNAMIC_DISPATCH(MultiplyIntegers)(x, first, rows, w, c, ldc, bias, choice);
}

void integer_gemm(int64_t rows, MatrixView<float> a, const QuantizedMatrix& w, float* c,
                  int64_t ldc, const float* bias) {
  constexpr int64_t kRows = 960;  // rounded at once
  for (int64_t first = 0; first < rows; first += kRows) {
    const int64_t count = std::min(kRows, rows - first);
    const RoundedRows x = round_rows(
        count, {a.data + first * a.row_stride, a.row_stride, a.col_stride}, w.width, w.group);
    multiply_integers(x, 0, count, w, c + first * ldc, ldc, bias);
  }
}

const char* integer_instructions() { return HWY_DYNAMIC_DISPATCH(InstructionsName)(); }

}  // namespace temper::kernels
#endif
