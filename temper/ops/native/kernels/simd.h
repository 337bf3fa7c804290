// Which SIMD target runs.
#pragma once

#include <string>
#include <vector>

namespace temper::kernels {
const char* simd_name();  // "AVX3", "AVX2", "NEON", "EMU128" (the scalar templates)

// The targets of this build that the machine has, as TEMPER_SIMD names them, the widest last.
std::vector<std::string> simd_targets();
// Limits all kernels to the target that the environment variable TEMPER_SIMD names, where it is
// set: results do not depend on it, and this is how that is checked. To be called once, before any
// kernel. Throws ConfigError where the machine has no such target.
void limit_simd();
// Whether instructions beyond those of the targets, AVX512-BF16's and AMX's, may be used.
bool allows_avx512();
}  // namespace temper::kernels
