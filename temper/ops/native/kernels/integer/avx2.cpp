// Compiled with AVX2 switched on (cmake/targets.cmake), and called only where the processor has it.
// Nothing here has external linkage but the one constant.
#include "temper/ops/native/kernels/integer/tile-inl.h"

#if defined(__AVX2__)
#include "temper/ops/native/kernels/integer/avx2_codes-inl.h"

namespace temper::kernels {
namespace {

// Unsigned bytes times signed ones are summed in pairs of 16 bits. The weight's magnitude is the
// one, the activation with the weight's sign the other: of at most 128 and 127, so that no pair
// exceeds 32512.
struct Avx2 : Avx2Codes<0> {
  static constexpr int kTileRows = 4;  // as many as 16 registers hold, with two kinds of weights
  static Ints dot(Ints sum, Ints w, Ints x) {
    const Ints pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
};

}  // namespace

const IntegerInstructions kAvx2{"AVX2", integer_panel_of<Avx2>, Avx2::kReadsPlanes};

}  // namespace temper::kernels
#else
namespace temper::kernels {
const IntegerInstructions kAvx2{"AVX2", nullptr, false};
}  // namespace temper::kernels
#endif
