// Which SIMD target runs.
#pragma once

namespace temper::kernels {
const char* simd_name();  // "AVX3", "AVX2", "NEON", "EMU128" (the scalar templates)
}
