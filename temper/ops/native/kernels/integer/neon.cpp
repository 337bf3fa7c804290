// For 64-bit ARM, all of which has NEON.
#include "temper/ops/native/kernels/integer/tile-inl.h"

#if defined(__aarch64__)
#include "temper/ops/native/kernels/integer/neon-inl.h"

namespace temper::kernels {
const IntegerInstructions kNeon{"NEON", integer_panel_of<Neon>, Neon::kReadsPlanes};
}  // namespace temper::kernels
#else
namespace temper::kernels {
const IntegerInstructions kNeon{"NEON", nullptr, false};
}  // namespace temper::kernels
#endif
