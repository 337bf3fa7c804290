// Which vector instructions the operations use (TEMPER_SIMD).
#pragma once

#include "temper/ops/native/kernels/simd.h"

namespace temper::ops {

using kernels::limit_simd;

}  // namespace temper::ops
