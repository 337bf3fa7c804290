// Compiled with AVX-VNNI switched on (cmake/targets.cmake), and called only where the processor has
// it. Nothing here has external linkage but the one constant.
#include "temper/ops/native/kernels/integer/tile-inl.h"

#if defined(__AVXVNNI__)
#include "temper/ops/native/kernels/integer/avx2_codes-inl.h"

namespace temper::kernels {
namespace {

struct AvxVnni : Avx2Codes<128> {
  static constexpr int kTileRows = 6;  // 12 of 16 registers hold sums
  static Ints dot(Ints sum, Ints w, Ints x) { return _mm256_dpbusd_avx_epi32(sum, w, x); }
};

}  // namespace

const IntegerInstructions kAvxVnni{"AVX-VNNI", integer_panel_of<AvxVnni>, AvxVnni::kReadsPlanes};

}  // namespace temper::kernels
#else
namespace temper::kernels {
const IntegerInstructions kAvxVnni{"AVX-VNNI", nullptr, false};
}  // namespace temper::kernels
#endif
