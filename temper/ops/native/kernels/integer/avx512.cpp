// Compiled with AVX-512 switched on (cmake/targets.cmake), and called only where the processor has
// it. Nothing here has external linkage but the one constant.
#include "temper/ops/native/kernels/integer/tile-inl.h"

#if defined(__AVX512BW__)
#include "temper/ops/native/kernels/integer/avx512_codes-inl.h"

namespace temper::kernels {
namespace {

// As AVX2's (avx2.cpp): magnitudes of weights, and activations with the weights' signs.
struct Avx512 : Avx512Codes<0> {
  static Ints dot(Ints sum, Ints w, Ints x) {
    const Ints signed_x =
        _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(w), _mm512_setzero_si512(), x);
    const Ints pairs = _mm512_maddubs_epi16(_mm512_abs_epi8(w), signed_x);
    return _mm512_add_epi32(sum, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
  }
};

}  // namespace

const IntegerInstructions kAvx512{"AVX-512", integer_panel_of<Avx512>, Avx512::kReadsPlanes};

}  // namespace temper::kernels
#else
namespace temper::kernels {
const IntegerInstructions kAvx512{"AVX-512", nullptr, false};
}  // namespace temper::kernels
#endif
