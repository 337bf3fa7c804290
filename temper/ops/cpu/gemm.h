// Matrix products whose every element is one chain of fused multiply-adds:
//     c[i,j] = fma(a[i,k], b[k,j], c[i,j])   for k ascending from 0, in one accumulator that starts
//     at 0 (or at c),
// the bias added last. Tile, SIMD width, number of rows and number of threads change the speed and
// never a bit. The right-hand side is packed into panels first; a pack serves any number of
// products.
#pragma once

#include <cstdint>

namespace temper::kernels {

// A strided view: element (i, j) is data[i * row_stride + j * col_stride].
template <class T>
struct MatrixView {
  const T* data;
  int64_t row_stride, col_stride;
};

// bfloat16 bits; widening to float32 is exact.
using BFloat16Bits = uint16_t;

// Floats that the packed form of a [k, n] matrix takes on this machine.
int64_t packed_size(int64_t k, int64_t n);

// Packs b[k, n] into `packed` (packed_size floats, 64-byte aligned for speed), in parallel over
// panels.
void pack(MatrixView<float> b, int64_t k, int64_t n, float* packed);

struct GemmOptions {
  bool accumulate = false;      // start from c instead of 0
  const float* bias = nullptr;  // [n], added after the last k
  int64_t panel_begin = 0;      // first column of c in the pack; a multiple of panel_width()
};

// c[m, n] (row stride ldc) = a[m, k] * packed b (+ bias). Parallel.
void gemm(int64_t m, int64_t n, int64_t k, MatrixView<float> a, const float* packed_b, float* c,
          int64_t ldc, const GemmOptions& options = {});

// Columns of a panel: 16 or 32, by the machine.
int64_t panel_width();

// The definition itself, for float64, for tests and for machines without fused multiply-add
// vectors.
template <class T>
void reference_gemm(int64_t m, int64_t n, int64_t k, MatrixView<T> a, MatrixView<T> b, T* c,
                    int64_t ldc, bool accumulate, const T* bias);

}  // namespace temper::kernels
