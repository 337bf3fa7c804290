// Blocking after Goto and van de Geijn, "Anatomy of high-performance matrix multiplication" (2008):
// a panel of b stays in the first-level cache, a packed block of a in the second, and a register
// tile of c goes through k in blocks.
#include "temper/ops/cpu/gemm.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <type_traits>

#include "temper/ops/cpu/quantized.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "temper/ops/cpu/gemm.cpp"
#include "temper/ops/cpu/targets.h"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "temper/ops/cpu/tile-inl.h"
#include "temper/ops/cpu/right-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace temper::kernels::HWY_NAMESPACE {

constexpr int64_t kBlockK = 256;        // kBlockK x kPanel floats fit the first-level cache
constexpr int64_t kBlockRows = 8 * 24;  // kBlockRows x kBlockK floats fit the second
// So few rows take as long as reading b takes: several panels side by side, far down k.
constexpr int64_t kStreamRows = 4 * kTileRows, kStreamK = 2048;
// What is unpacked of a right-hand side of codes at once: it stays in the first-level cache.
constexpr int64_t kUnpackedFloats = kBlockK * kPanel;

// Denormal numbers are zero in this thread while one lives.
class FlushDenormals {
 public:
#if HWY_ARCH_X86
  FlushDenormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040); }  // FTZ and DAZ
  ~FlushDenormals() { _mm_setcsr(before_); }

 private:
  unsigned before_;
#endif
};

float rounded(float x) { return to_float(to_bfloat16(x)); }

// As pack_left, rounded.
void pack_left_rounded(MatrixView<float> a, int64_t rows, int64_t depth, int64_t tile, float* out) {
  for (int64_t i0 = 0; i0 < rows; i0 += tile) {
    const int64_t height = std::min(tile, rows - i0);
    const float* from = a.data + i0 * a.row_stride;
    float* to = out + i0 * depth;
    if (a.row_stride == 1) {
      for (int64_t k = 0; k < depth; ++k)
        for (int64_t i = 0; i < height; ++i)
          to[k * height + i] = rounded(from[i + k * a.col_stride]);
    } else {
      for (int64_t i = 0; i < height; ++i)
        for (int64_t k = 0; k < depth; ++k)
          to[k * height + i] = rounded(from[i * a.row_stride + k * a.col_stride]);
    }
  }
}

// Copies a[rows, depth] tile by tile: `tile` rows side by side for each k.
void pack_left(MatrixView<float> a, int64_t rows, int64_t depth, int64_t tile, float* out) {
  for (int64_t i0 = 0; i0 < rows; i0 += tile) {
    const int64_t height = std::min(tile, rows - i0);
    const float* from = a.data + i0 * a.row_stride;
    float* to = out + i0 * depth;
    if (a.row_stride == 1 && height == kTileRows) {  // of a known size, so that it is a few vectors
      for (int64_t k = 0; k < depth; ++k)
        std::memcpy(to + k * kTileRows, from + k * a.col_stride, kTileRows * sizeof(float));
    } else {
      for (int64_t i = 0; i < height; ++i)
        for (int64_t k = 0; k < depth; ++k)
          to[k * height + i] = from[i * a.row_stride + k * a.col_stride];
    }
  }
}

// c[rows, columns] for one task: all of k, in blocks. `right` is the right-hand side
// (right-inl.h).
template <class Right>
void block(int64_t rows, int64_t columns, int64_t k, MatrixView<float> a, const Right& right,
           float* c, int64_t ldc, bool accumulate, const float* bias, bool round, float* left) {
  // Rows are read as they lie. Where it is the values of one row that lie apart, a copy pays if
  // many panels read it.
  const bool apart = a.col_stride != 1 && rows > kTileRows && columns > 2 * kPanel;
  const bool copy = apart || round, stream = !apart && rows <= kStreamRows;
  const int64_t tallest = stream ? kTileRows / 2 : kTileRows;
  const int64_t tiles = (rows + tallest - 1) / tallest, tile = (rows + tiles - 1) / tiles;
  // What one pass over the rows reads of b stays in the cache for the next tile.
  int64_t block_k = stream ? kStreamK : kBlockK;
  int64_t at_once = tiles == 1 ? columns : stream ? 2 * kPanel : kPanel;
  if constexpr (Right::kUnpacks) {
    at_once = panels_at_once(static_cast<int>(tile)) * kPanel;
    block_k = std::min(kBlockK, kUnpackedFloats / at_once);
  }
  const auto multiply = [&](int64_t k0, int64_t j) {
    const int64_t depth = std::min(block_k, k - k0), width = std::min(at_once, columns - j);
    const MatrixView<float> part{a.data + k0 * a.col_stride, a.row_stride, a.col_stride};
    const auto [b, panel_stride] = right.block(j, width, k0, depth);
    for (int64_t i = 0; i < rows; i += tile) {
      const int height = static_cast<int>(std::min(tile, rows - i));
      tile_row(height, width, depth, copy ? left + i * depth : part.data + i * part.row_stride,
               copy ? 1 : part.row_stride, copy ? height : part.col_stride, b, panel_stride,
               c + i * ldc + j, ldc, accumulate || k0 > 0);
    }
  };
  if (Right::kUnpacks && stream) {  // few rows: codes are read in the order in which they lie
    for (int64_t j = 0; j < columns; j += at_once)
      for (int64_t k0 = 0; k0 < k; k0 += block_k) multiply(k0, j);
  } else {
    for (int64_t k0 = 0; k0 < k; k0 += block_k) {
      const int64_t depth = std::min(block_k, k - k0);
      const MatrixView<float> part{a.data + k0 * a.col_stride, a.row_stride, a.col_stride};
      if (round)
        pack_left_rounded(part, rows, depth, tile, left);
      else if (copy)
        pack_left(part, rows, depth, tile, left);
      for (int64_t j = 0; j < columns; j += at_once) multiply(k0, j);
    }
  }
  if (k == 0 && !accumulate)
    for (int64_t i = 0; i < rows; ++i) std::fill(c + i * ldc, c + i * ldc + columns, 0.0f);
  if (bias)
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j) c[i * ldc + j] += bias[j];
}

int64_t GetPanelWidth() { return kPanel; }

template <class To, class From>
To converted(From x) {
  if constexpr (std::is_same_v<To, From>)
    return x;
  else
    return to_bfloat16(x);
}

// A panel of columns whose values lie side by side.
template <class From, class To>
void pack_columns(const From* from, int64_t stride, int64_t k, int64_t width, To* to) {
  constexpr int64_t kLine = 16;  // k at a time: one cache line of each column
  for (int64_t i0 = 0; i0 < k; i0 += kLine) {
    const int64_t height = std::min(kLine, k - i0);
    int64_t j = 0;
    if constexpr (std::is_same_v<From, float> && std::is_same_v<To, float>) {
      for (; height == kLine && j + 4 <= width; j += 4)
        for (int64_t i = i0; i < i0 + kLine; i += 4)
          transpose_four(from + i + j * stride, stride, to + i * kPanel + j);
    }
    for (; j < width; ++j)
      for (int64_t i = i0; i < i0 + height; ++i)
        to[i * kPanel + j] = converted<To>(from[i + j * stride]);
  }
}

template <class From, class To>
void PackAs(MatrixView<From> b, int64_t k, int64_t n, To* packed) {
  const int64_t panels = (n + kPanel - 1) / kPanel;
#pragma omp parallel for schedule(static) if (k * n > 32768)
  for (int64_t p = 0; p < panels; ++p) {
    To* to = packed + p * kPanel * k;
    const int64_t width = std::min<int64_t>(kPanel, n - p * kPanel);
    const From* from = b.data + p * kPanel * b.col_stride;
    if (width < kPanel) std::fill(to, to + kPanel * k, To(0));
    if (b.row_stride == 1) {
      pack_columns(from, b.col_stride, k, width, to);
    } else {
      for (int64_t i = 0; i < k; ++i)
        for (int64_t j = 0; j < width; ++j)
          to[i * kPanel + j] = converted<To>(from[i * b.row_stride + j * b.col_stride]);
    }
  }
}
void Pack(MatrixView<float> b, int64_t k, int64_t n, float* packed) { PackAs(b, k, n, packed); }
void PackRounded(MatrixView<float> b, int64_t k, int64_t n, BFloat16Bits* packed) {
  PackAs(b, k, n, packed);
}
void PackBFloat16(MatrixView<BFloat16Bits> b, int64_t k, int64_t n, BFloat16Bits* packed) {
  PackAs(b, k, n, packed);
}

// A thread's scratch: 0 for its block of a, others for what it unpacks.
template <int kUse, int64_t kFloats>
float* thread_scratch() {
  struct Free {
    void operator()(float* p) const { ::operator delete(p, std::align_val_t{64}); }
  };
  thread_local std::unique_ptr<float, Free> scratch(
      static_cast<float*>(::operator new(kFloats * sizeof(float), std::align_val_t{64})));
  return scratch.get();
}
float* left_scratch() {
  return thread_scratch<0, std::max(kBlockRows * kBlockK, kStreamRows * kStreamK)>();
}

// How many panels a task takes, so that no thread waits long for the last one's task: the most for
// which the threads' longest share of tasks is within 2 % of an equal one, or else the best.
int64_t panels_per_task(int64_t row_blocks, int64_t panels, int threads) {
  if (threads == 1) return panels;
  const int64_t least =
      std::clamp<int64_t>(4 * threads / row_blocks, 1, panels);  // blocks of columns
  const int64_t most = std::min(panels, 4 * least);
  int64_t best = panels, best_time = row_blocks * panels;
  for (int64_t blocks = least;
       blocks <= most && 50 * best_time * threads > 51 * row_blocks * panels; ++blocks) {
    const int64_t per = (panels + blocks - 1) / blocks,
                  tasks = row_blocks * ((panels + per - 1) / per);
    const int64_t time = (tasks + threads - 1) / threads * per;
    if (time < best_time) best_time = time, best = per;
  }
  return best;
}

// right(j): the right-hand side from column j of the product on.
template <class MakeRight>
void GemmAs(int64_t m, int64_t n, int64_t k, MatrixView<float> a, const MakeRight& right, float* c,
            int64_t ldc, const GemmOptions& options) {
  if (m == 0 || n == 0) return;
  // Tasks: blocks of rows by ranges of panels. Many rows: whole rows of c; few: the panels are
  // shared out.
  const int threads = omp_in_parallel() ? 1 : omp_get_max_threads();
  const int64_t row_blocks = (m + kBlockRows - 1) / kBlockRows, panels = (n + kPanel - 1) / kPanel;
  const int64_t rows_per =
      ((m + row_blocks - 1) / row_blocks + kTileRows - 1) / kTileRows * kTileRows;
  const int64_t panels_per = m <= kTileRows ? (panels + threads - 1) / threads
                                            : panels_per_task(row_blocks, panels, threads);
  const int64_t column_blocks = (panels + panels_per - 1) / panels_per;
  // Below about 20 microseconds, of arithmetic or of reading b, threads cost more than they save,
  // the more so where other programs use the cores too.
  const bool parallel = threads > 1 && (m * n * k > 2'000'000 || n * k > 100'000);
#pragma omp parallel for schedule(dynamic) collapse(2) if (parallel)
  for (int64_t r = 0; r < row_blocks; ++r) {
    for (int64_t q = 0; q < column_blocks; ++q) {
      const int64_t i = r * rows_per, rows = std::min(rows_per, m - i);
      const int64_t j = q * panels_per * kPanel, columns = std::min(panels_per * kPanel, n - j);
      if (rows <= 0 || columns <= 0) continue;
      std::optional<FlushDenormals> flush;
      if (options.round_left) flush.emplace();
      block(rows, columns, k, {a.data + i * a.row_stride, a.row_stride, a.col_stride}, right(j),
            c + i * ldc + j, ldc, options.accumulate, options.bias ? options.bias + j : nullptr,
            options.round_left, left_scratch());
    }
  }
}

template <class B>
void GemmPacked(int64_t m, int64_t n, int64_t k, MatrixView<float> a, const B* packed_b, float* c,
                int64_t ldc, const GemmOptions& options) {
  const int64_t stride = kPanel * k;
  GemmAs(
      m, n, k, a,
      [&](int64_t j) {
        return PackedRight<B>{packed_b + (options.panel_begin + j) / kPanel * stride, stride};
      },
      c, ldc, options);
}
void Gemm(int64_t m, int64_t n, int64_t k, MatrixView<float> a, const float* packed_b, float* c,
          int64_t ldc, const GemmOptions& options) {
  GemmPacked(m, n, k, a, packed_b, c, ldc, options);
}
void GemmBFloat16(int64_t m, int64_t n, int64_t k, MatrixView<float> a,
                  const BFloat16Bits* packed_b, float* c, int64_t ldc, const GemmOptions& options) {
  GemmPacked(m, n, k, a, packed_b, c, ldc, options);
}

float* unpacked_scratch() { return thread_scratch<2, kUnpackedFloats>(); }

template <Code kCode>
void GemmCodes(int64_t m, MatrixView<float> a, const QuantizedMatrix& w, bool transposed, float* c,
               int64_t ldc, const GemmOptions& options) {
  if (transposed)
    GemmAs(
        m, w.width, w.rows, a,
        [&](int64_t j) { return ColumnCodes<kCode>{w, j, unpacked_scratch()}; }, c, ldc, options);
  else
    GemmAs(
        m, w.rows, w.width, a,
        [&](int64_t j) { return RowCodes<kCode>{w, j / kPanel, unpacked_scratch()}; }, c, ldc,
        options);
}
void GemmQuantized(int64_t m, MatrixView<float> a, const QuantizedMatrix& w, bool transposed,
                   float* c, int64_t ldc, const GemmOptions& options) {
  if (w.code == Code::kNf4)
    GemmCodes<Code::kNf4>(m, a, w, transposed, c, ldc, options);
  else
    GemmCodes<Code::kInt8>(m, a, w, transposed, c, ldc, options);
}

template <Code kCode>
void DequantizeCodes(const QuantizedMatrix& w, float* values) {
  const int64_t panels = (w.rows + kPanel - 1) / kPanel;
#pragma omp parallel for schedule(static) if (w.rows * w.width > 32768)
  for (int64_t p = 0; p < panels; ++p) {
    float* part = unpacked_scratch();
    for (int64_t i0 = 0; i0 < w.width; i0 += kBlockK) {
      const int64_t depth = std::min(kBlockK, w.width - i0);
      unpack_panel<kCode>(w, p, i0, depth, part);
      for (int64_t r = p * kPanel; r < std::min<int64_t>((p + 1) * kPanel, w.rows); ++r)
        for (int64_t i = 0; i < depth; ++i)
          values[r * w.width + i0 + i] = part[i * kPanel + r - p * kPanel];
    }
  }
}
void Dequantize(const QuantizedMatrix& w, float* values) {
  w.code == Code::kNf4 ? DequantizeCodes<Code::kNf4>(w, values)
                       : DequantizeCodes<Code::kInt8>(w, values);
}

}  // namespace temper::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace temper::kernels {
HWY_EXPORT(GetPanelWidth);
HWY_EXPORT(Pack);
HWY_EXPORT(Gemm);
HWY_EXPORT(PackRounded);
HWY_EXPORT(PackBFloat16);
HWY_EXPORT(GemmBFloat16);
HWY_EXPORT(GemmQuantized);
HWY_EXPORT(Dequantize);

int64_t panel_width() { return HWY_DYNAMIC_DISPATCH(GetPanelWidth)(); }
int64_t packed_size(int64_t k, int64_t n) {
  const int64_t width = panel_width();
  return (n + width - 1) / width * width * k;
}
void pack(MatrixView<float> b, int64_t k, int64_t n, float* packed) {
  HWY_DYNAMIC_DISPATCH(Pack)(b, k, n, packed);
}
void gemm(int64_t m, int64_t n, int64_t k, MatrixView<float> a, const float* packed_b, float* c,
          int64_t ldc, const GemmOptions& options) {
  HWY_DYNAMIC_DISPATCH(Gemm)(m, n, k, a, packed_b, c, ldc, options);
}

void pack(MatrixView<float> b, int64_t k, int64_t n, BFloat16Bits* packed) {
  HWY_DYNAMIC_DISPATCH(PackRounded)(b, k, n, packed);
}
void pack(MatrixView<BFloat16Bits> b, int64_t k, int64_t n, BFloat16Bits* packed) {
  HWY_DYNAMIC_DISPATCH(PackBFloat16)(b, k, n, packed);
}
void gemm(int64_t m, int64_t n, int64_t k, MatrixView<float> a, const BFloat16Bits* packed_b,
          float* c, int64_t ldc, const GemmOptions& options) {
  HWY_DYNAMIC_DISPATCH(GemmBFloat16)(m, n, k, a, packed_b, c, ldc, options);
}

void gemm(int64_t m, MatrixView<float> a, const QuantizedMatrix& w, float* c, int64_t ldc,
          const GemmOptions& options) {
  HWY_DYNAMIC_DISPATCH(GemmQuantized)(m, a, w, false, c, ldc, options);
}
void gemm_transposed(int64_t m, MatrixView<float> a, const QuantizedMatrix& w, float* c,
                     int64_t ldc, const GemmOptions& options) {
  HWY_DYNAMIC_DISPATCH(GemmQuantized)(m, a, w, true, c, ldc, options);
}
void dequantize(const QuantizedMatrix& w, float* values) {
  HWY_DYNAMIC_DISPATCH(Dequantize)(w, values);
}

template <class T>
void reference_gemm(int64_t m, int64_t n, int64_t k, MatrixView<T> a, MatrixView<T> b, T* c,
                    int64_t ldc, bool accumulate, const T* bias) {
#pragma omp parallel for schedule(static) if (m * n * k > 65536)
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      T sum = accumulate ? c[i * ldc + j] : T(0);
      for (int64_t p = 0; p < k; ++p)
        sum = std::fma(a.data[i * a.row_stride + p * a.col_stride],
                       b.data[p * b.row_stride + j * b.col_stride], sum);
      c[i * ldc + j] = bias ? sum + bias[j] : sum;
    }
  }
}
template void reference_gemm(int64_t, int64_t, int64_t, MatrixView<float>, MatrixView<float>,
                             float*, int64_t, bool, const float*);
template void reference_gemm(int64_t, int64_t, int64_t, MatrixView<double>, MatrixView<double>,
                             double*, int64_t, bool, const double*);

}  // namespace temper::kernels
#endif
