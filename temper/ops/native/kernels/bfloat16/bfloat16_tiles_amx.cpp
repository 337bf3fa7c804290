// Compiled with AMX and AVX-512 switched on (cmake/targets.cmake), and called only where the
// processor has them. Nothing here has external linkage but the instructions' table. Calls no
// library: what is compiled here for one kind of processor must not be found by the linker for
// another.
#include "temper/ops/native/kernels/bfloat16/bfloat16_tiles.h"

#if defined(__AMX_BF16__) && defined(__AVX512BW__)
#include <immintrin.h>

namespace temper::kernels {
namespace {

constexpr int kRowBytes = 64;  // of a tile: 16 rows of 16 pairs, or of 16 floats

void start() {
  struct alignas(64) {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};
  } shape;
  for (int i = 0; i < 8; ++i) {
    shape.row_bytes[i] = kRowBytes;
    shape.rows[i] = kMatrixSide;
  }
  // GCC's intrinsic says that it reads eight bytes: the others must be in memory by now.
  asm volatile("" : : "r"(&shape) : "memory");
  _tile_loadconfig(&shape);
}

// Tiles 0 to 3 are of c, 4 and 5 of a, 6 and 7 of b.
void product(int64_t row_tiles, int64_t blocks, const uint32_t* a, int64_t a_rows,
             const uint32_t* b, float* c, int64_t c_row, bool from_c) {
  constexpr int64_t kColumnBytes = 2 * kRowBytes;
  const int64_t to_bytes = c_row * 4;
  const bool both = row_tiles == 2;
  float* lower = c + kMatrixSide * c_row;
  asm volatile("" : : : "memory");  // the intrinsics do not say that they read memory
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  if (from_c) {
    _tile_loadd(0, c, to_bytes);
    _tile_loadd(1, c + kMatrixSide, to_bytes);
    if (both) {
      _tile_loadd(2, lower, to_bytes);
      _tile_loadd(3, lower + kMatrixSide, to_bytes);
    }
  }
  for (int64_t i = 0; i < blocks; ++i, a += kMatrixTile, b += 2 * kMatrixTile) {
    _tile_loadd(6, b, kColumnBytes);
    _tile_loadd(4, a, kRowBytes);
    _tile_loadd(7, b + kMatrixSide, kColumnBytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    if (!both) continue;
    _tile_loadd(5, a + a_rows, kRowBytes);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, c, to_bytes);
  _tile_stored(1, c + kMatrixSide, to_bytes);
  if (!both) return;
  _tile_stored(2, lower, to_bytes);
  _tile_stored(3, lower + kMatrixSide, to_bytes);
}

void pair_columns(int64_t depth, const BFloat16Bits* panel, uint32_t* pairs) {
  alignas(64) static constexpr uint16_t kOrder[64] = {
      // Column i of the second operand (32 + i) in the low half, of the first in the high half.
      32, 0,  33, 1,  34, 2,  35, 3,  36, 4,  37, 5,  38, 6,  39, 7,  40, 8,  41, 9,  42, 10,
      43, 11, 44, 12, 45, 13, 46, 14, 47, 15, 48, 16, 49, 17, 50, 18, 51, 19, 52, 20, 53, 21,
      54, 22, 55, 23, 56, 24, 57, 25, 58, 26, 59, 27, 60, 28, 61, 29, 62, 30, 63, 31};
  const __m512i left = _mm512_load_si512(kOrder), right = _mm512_load_si512(kOrder + 32);
  for (int64_t k = 0; k < kBlockDepth; k += 2, pairs += 2 * kMatrixSide) {
    const __m512i none = _mm512_setzero_si512();
    const __m512i first = k < depth ? _mm512_loadu_si512(panel + k * 32) : none,
                  second = k + 1 < depth ? _mm512_loadu_si512(panel + (k + 1) * 32) : none;
    _mm512_storeu_si512(pairs, _mm512_permutex2var_epi16(first, left, second));
    _mm512_storeu_si512(pairs + kMatrixSide, _mm512_permutex2var_epi16(first, right, second));
  }
}

void stop() { _tile_release(); }

}  // namespace

const MatrixInstructions kAmx = {start, stop, product, pair_columns};

}  // namespace temper::kernels
#else
namespace temper::kernels {
const MatrixInstructions kAmx = {};
}  // namespace temper::kernels
#endif
