// Which SIMD targets the kernels are compiled for: those with a fused multiply-add, as every
// definition of an arithmetic result here is written in terms of it. Machines without one run the
// scalar templates (target EMU128 or SCALAR). ARM's SVE is left out: the compiler does not know the
// size of its vectors, and the kernels keep vectors in arrays. Include before <hwy/highway.h>.
#pragma once

#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#endif
