// Compiled with the dot product switched on (cmake/targets.cmake), and called only where the
// processor has it. Nothing here has external linkage but the one constant.
#include "temper/ops/native/kernels/integer/tile-inl.h"

#if defined(__aarch64__) && defined(__ARM_FEATURE_DOTPROD)
#include "temper/ops/native/kernels/integer/neon-inl.h"

namespace temper::kernels {
const IntegerInstructions kNeonDot{"NEON's dot product", integer_panel_of<Neon>,
                                   Neon::kReadsPlanes};
}  // namespace temper::kernels
#else
namespace temper::kernels {
const IntegerInstructions kNeonDot{"NEON's dot product", nullptr, false};
}  // namespace temper::kernels
#endif
