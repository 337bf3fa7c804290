#include "temper/ops/native/kernels/gemm.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <new>
#include <optional>
#include <vector>

#include "temper/base/clock.h"
#include "temper/ops/native/kernels/bfloat16/bfloat16_dot.h"
#include "temper/ops/native/kernels/bfloat16/bfloat16_tiles.h"
#include "temper/ops/native/kernels/processors.h"
#include "temper/ops/native/kernels/quantized.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "temper/ops/native/kernels/gemm.cpp"
#include "temper/ops/native/kernels/targets.h"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "temper/ops/native/kernels/blocks-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace temper::kernels::HWY_NAMESPACE {

int64_t GetPanelWidth() { return kPanel; }

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
  return thread_scratch<0, std::max({kBlockRows * kBlockK, kStreamRows * kStreamK, kDotPairs})>();
}

// Memory for this thread's tasks of one product.
TaskScratch task_scratch(bool matrices) {
  TaskScratch scratch{.left = left_scratch(), .dot = {}, .matrix = {}};
  scratch.dot.pairs = reinterpret_cast<uint32_t*>(scratch.left);
  if (!matrices) return scratch;
  scratch.matrix.left = reinterpret_cast<uint32_t*>(thread_scratch<3, kMatrixLeft>());
  scratch.matrix.right = reinterpret_cast<uint32_t*>(thread_scratch<4, kMatrixRight>());
  return scratch;
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
  if (!omp_in_parallel()) take_processors();
  const int threads = omp_in_parallel() ? 1 : omp_get_max_threads();
  const bool matrices = by_matrices<decltype(right(0))>(m, options.rounding);
  const int64_t block_rows = matrices ? kMatrixRows : kBlockRows,
                row_blocks = (m + block_rows - 1) / block_rows, panels = (n + kPanel - 1) / kPanel;
  const int64_t tile_rows = matrices ? 2 * kMatrixSide : kTileRows,
                rows_per =
                    ((m + row_blocks - 1) / row_blocks + tile_rows - 1) / tile_rows * tile_rows;
  const int64_t panels_per = m <= kTileRows ? (panels + threads - 1) / threads
                                            : panels_per_task(row_blocks, panels, threads);
  const int64_t column_blocks = (panels + panels_per - 1) / panels_per;
  // Below about 20 microseconds, of arithmetic or of reading b, threads cost more than they save,
  // the more so where other programs use the cores too.
  const bool parallel = threads > 1 && (m * n * k > 2'000'000 || n * k > 100'000);
  const auto part = [&](int64_t r, int64_t q, TaskScratch& scratch) {
    const int64_t i = r * rows_per, rows = std::min(rows_per, m - i);
    const int64_t j = q * panels_per * kPanel, columns = std::min(panels_per * kPanel, n - j);
    if (rows <= 0 || columns <= 0) return;
    std::optional<FlushDenormals> flush;
    if (options.rounding != Rounding::kNone) flush.emplace();
    block(rows, columns, k, {a.data + i * a.row_stride, a.row_stride, a.col_stride}, right(j),
          c + i * ldc + j, ldc, options.accumulate, options.bias ? options.bias + j : nullptr,
          options.rounding, scratch);
  };
  // As in loops.h.
  if (!parallel) {
    TaskScratch scratch = task_scratch(matrices);
    for (int64_t r = 0; r < row_blocks; ++r)
      for (int64_t q = 0; q < column_blocks; ++q) part(r, q, scratch);
    return;
  }
#pragma omp parallel
  {
    TaskScratch scratch = task_scratch(matrices);
#pragma omp for schedule(dynamic) collapse(2) nowait
    for (int64_t r = 0; r < row_blocks; ++r)
      for (int64_t q = 0; q < column_blocks; ++q) part(r, q, scratch);
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

void GemmQuantized(int64_t m, MatrixView<float> a, const QuantizedMatrix& w, bool transposed,
                   float* c, int64_t ldc, const GemmOptions& options) {
  const int64_t n = transposed ? w.width : w.rows, k = transposed ? w.rows : w.width;
  const CodeKernels kernels = kernels_of(w);
  const auto columns = [&](int64_t j) { return ColumnCodes{w, kernels, j, unpacked_scratch()}; };
  const auto rows = [&](int64_t j) { return RowCodes{w, kernels, j / kPanel, unpacked_scratch()}; };
  const auto multiply_codes = [&](const auto& codes) {
    if (options.rounding == Rounding::kNone) return GemmAs(m, n, k, a, codes, c, ldc, options);
    const auto rounded = [&](int64_t j) { return RoundedCodes<decltype(codes(j))>{codes(j)}; };
    GemmAs(m, n, k, a, rounded, c, ldc, options);
  };
  transposed ? multiply_codes(columns) : multiply_codes(rows);
}

bool IsQuicker(DotTile by_dot) {
  if (kPanel != kDotColumns) return false;
  constexpr int64_t kRows = kBlockRows, kDepth = 512;
  const std::vector<float> a(kRows * kDepth, 1.0f);
  const std::vector<BFloat16Bits> b(kDepth * kPanel, BFloat16Bits{0x3f80});
  std::vector<float> c(kRows * kPanel);
  const MatrixView<float> left{a.data(), kDepth, 1};
  const auto seconds_of = [&](const auto& product) {
    double best = 1;
    for (int i = 0; i < 7; ++i) {
      const double start = steady_seconds();
      product();
      best = std::min(best, steady_seconds() - start);
    }
    return best;
  };
  const PackedRight<BFloat16Bits> right{b.data(), kDepth * kPanel};
  const double plain = seconds_of([&] {
    multiply(kRows, kPanel, kDepth, left, right, c.data(), kPanel, false, Rounding::kChain,
             left_scratch());
  });
  const double dot = seconds_of([&] {
    DotLeft packed{reinterpret_cast<uint32_t*>(left_scratch())};
    multiply_by_dot(by_dot, kRows, kPanel, kDepth, left, b.data(), kDepth * kPanel, c.data(),
                    kPanel, false, packed);
  });
  return dot <= plain;
}

void Dequantize(const QuantizedMatrix& w, float* values) {
  const int64_t panels = (w.rows + kPanel - 1) / kPanel;
  const CodeKernels kernels = kernels_of(w);
#pragma omp parallel for schedule(static) if (w.rows * w.width > 32768)
  for (int64_t p = 0; p < panels; ++p) {
    float* part = unpacked_scratch();
    for (int64_t i0 = 0; i0 < w.width; i0 += kBlockK) {
      const int64_t depth = std::min(kBlockK, w.width - i0);
      kernels.unpack(w, p, i0, depth, part);
      for (int64_t r = p * kPanel; r < std::min<int64_t>((p + 1) * kPanel, w.rows); ++r)
        for (int64_t i = 0; i < depth; ++i)
          values[r * w.width + i0 + i] = part[i * kPanel + r - p * kPanel];
    }
  }
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
HWY_EXPORT(PackPairs);
HWY_EXPORT(PackTiles);
HWY_EXPORT(IsQuicker);
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
void pack_pairs(MatrixView<float> a, int64_t rows, int64_t depth, uint32_t* pairs) {
  HWY_DYNAMIC_DISPATCH(PackPairs)(a, rows, depth, pairs);
}
void pack_tiles(MatrixView<float> a, int64_t rows, int64_t depth, uint32_t* tiles) {
  HWY_DYNAMIC_DISPATCH(PackTiles)(a, rows, depth, tiles);
}
void pack(MatrixView<BFloat16Bits> b, int64_t k, int64_t n, BFloat16Bits* packed) {
  HWY_DYNAMIC_DISPATCH(PackBFloat16)(b, k, n, packed);
}
bool is_quicker(DotTile tile) { return HWY_DYNAMIC_DISPATCH(IsQuicker)(tile); }
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
