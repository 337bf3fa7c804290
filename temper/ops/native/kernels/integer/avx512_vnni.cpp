// Compiled with AVX512-VNNI switched on (cmake/targets.cmake), and called only where the processor
// has it. Nothing here has external linkage but the one constant.
#include "temper/ops/native/kernels/integer/tile-inl.h"

#if defined(__AVX512VNNI__)
#include "temper/ops/native/kernels/integer/avx512_codes-inl.h"

namespace temper::kernels {
namespace {

struct Avx512Vnni : Avx512Codes<128> {
  static Ints dot(Ints sum, Ints w, Ints x) { return _mm512_dpbusd_epi32(sum, w, x); }
};

}  // namespace

const IntegerInstructions kAvx512Vnni{"AVX512-VNNI", integer_panel_of<Avx512Vnni>,
                                      Avx512Vnni::kReadsPlanes};

}  // namespace temper::kernels
#else
namespace temper::kernels {
const IntegerInstructions kAvx512Vnni{"AVX512-VNNI", nullptr, false};
}  // namespace temper::kernels
#endif
