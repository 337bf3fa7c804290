// Compiled with AVX512-BF16 switched on (cmake/targets.cmake), and called only where the processor
// has it. Nothing here has external linkage but the one function.
#include "temper/ops/native/kernels/dot_tile-inl.h"

#if defined(__AVX512BF16__)
#include <immintrin.h>

namespace temper::kernels {
namespace {

struct Avx512 {
  using Vec = __m512i;
  static Vec zero() { return _mm512_setzero_si512(); }
  static Vec load(const void* from) { return _mm512_loadu_si512(from); }
  static void store(Vec x, float* to) { _mm512_storeu_si512(to, x); }
  static Vec broadcast(unsigned x) { return _mm512_set1_epi32(static_cast<int>(x)); }
  static Vec interleave_lower(Vec a, Vec b) { return _mm512_unpacklo_epi16(a, b); }
  static Vec interleave_upper(Vec a, Vec b) { return _mm512_unpackhi_epi16(a, b); }
  static Vec even_blocks(Vec a, Vec b) { return _mm512_shuffle_i32x4(a, b, 0x88); }
  static Vec odd_blocks(Vec a, Vec b) { return _mm512_shuffle_i32x4(a, b, 0xdd); }
  static Vec lower_blocks(Vec a, Vec b) { return alternating(_mm512_shuffle_i32x4(a, b, 0x44)); }
  static Vec upper_blocks(Vec a, Vec b) { return alternating(_mm512_shuffle_i32x4(a, b, 0xee)); }
  static Vec dot(Vec sum, Vec a, Vec b) {
    return _mm512_castps_si512(
        _mm512_dpbf16_ps(_mm512_castsi512_ps(sum), (__m512bh)a, (__m512bh)b));
  }

 private:
  static Vec alternating(Vec x) { return _mm512_shuffle_i32x4(x, x, 0xd8); }  // 0, 2, 1, 3
};

}  // namespace

void avx512_dot_tile(int rows, long depth, const unsigned* a, long a_row, const unsigned short* b,
                     float* c, long c_row, bool from_c) {
  dot_tile_of<Avx512>(rows, depth, a, a_row, b, c, c_row, from_c);
}

}  // namespace temper::kernels
#else
namespace temper::kernels {
void avx512_dot_tile(int, long, const unsigned*, long, const unsigned short*, float*, long, bool) {
  __builtin_trap();
}
}  // namespace temper::kernels
#endif
