// Matrix products whose every element is one chain of fused multiply-adds:
//     c[i,j] = fma(a[i,k], b[k,j], c[i,j])   for k ascending from 0, in one accumulator that starts
//     at 0 (or at c),
// the bias added last. Tile, SIMD width, number of rows and number of threads change the speed and
// never a bit. The right-hand side is packed into panels first; a pack serves any number of
// products.
#pragma once

#include <bit>
#include <cstdint>

namespace temper::kernels {

// A strided view: element (i, j) is data[i * row_stride + j * col_stride].
template <class T>
struct MatrixView {
  const T* data;
  int64_t row_stride, col_stride;
};

// bfloat16 bits: the upper half of a float32's, so that widening is exact. Rounded to nearest, ties
// to even.
using BFloat16Bits = uint16_t;
inline BFloat16Bits to_bfloat16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u)
    return static_cast<BFloat16Bits>(bits >> 16 | 0x40);  // stays NaN
  return static_cast<BFloat16Bits>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}
inline float to_float(BFloat16Bits x) { return std::bit_cast<float>(uint32_t{x} << 16); }
inline float to_float(float x) { return x; }

// Values that the packed form of a [k, n] matrix takes on this machine.
int64_t packed_size(int64_t k, int64_t n);

// Packs b[k, n] into `packed` (packed_size values, 64-byte aligned for speed), in parallel over
// panels. In bfloat16 the values are rounded: half the memory to read, and the products are those
// of the rounded values.
void pack(MatrixView<float> b, int64_t k, int64_t n, float* packed);
void pack(MatrixView<float> b, int64_t k, int64_t n, BFloat16Bits* packed);
void pack(MatrixView<BFloat16Bits> b, int64_t k, int64_t n, BFloat16Bits* packed);

// Whether the left factor of a product with a bfloat16 pack is rounded to bfloat16, and how the
// products of two such numbers, which are exact in float32, are summed. Denormal numbers are zero
// then, as inputs and in every sum.
enum class Rounding {
  kNone,
  // The chain above. AVX512-BF16's dot product does two steps of it in one instruction.
  kChain,
  // k ascending in blocks of kBlockDepth: c[i,j] = c[i,j] + (even + odd), where the even and the
  // odd k of a block have a chain each, which starts at 0. That is what Intel AMX does in one
  // instruction. Values of a QuantizedMatrix (quantized.h) are rounded to bfloat16, too.
  kBlocks,
};
constexpr int64_t kBlockDepth = 32;

struct GemmOptions {
  bool accumulate = false;      // start from c instead of 0
  const float* bias = nullptr;  // [n], added after the last k
  int64_t panel_begin = 0;      // first column of c in the pack; a multiple of panel_width()
  Rounding rounding =
      Rounding::kNone;  // kChain and kBlocks are of bfloat16 packs, kBlocks of codes
};

// c[m, n] (row stride ldc) = a[m, k] * packed b (+ bias). Parallel.
void gemm(int64_t m, int64_t n, int64_t k, MatrixView<float> a, const float* packed_b, float* c,
          int64_t ldc, const GemmOptions& options = {});
void gemm(int64_t m, int64_t n, int64_t k, MatrixView<float> a, const BFloat16Bits* packed_b,
          float* c, int64_t ldc, const GemmOptions& options = {});

// Columns of a panel: 16 or 32, by the machine.
int64_t panel_width();

// The definition itself, for float64, for tests and for machines without fused multiply-add
// vectors.
template <class T>
void reference_gemm(int64_t m, int64_t n, int64_t k, MatrixView<T> a, MatrixView<T> b, T* c,
                    int64_t ldc, bool accumulate, const T* bias);

}  // namespace temper::kernels
