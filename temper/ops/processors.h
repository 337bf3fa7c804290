// What the operations take of the machine: vector instructions (TEMPER_SIMD), and processors that
// threads share, such as one that samples while another trains.
#pragma once

#include "temper/ops/native/kernels/processors.h"
#include "temper/ops/native/kernels/simd.h"

namespace temper::ops {

using kernels::follow_processors;
using kernels::limit_simd;
using kernels::ProcessorCount;

}  // namespace temper::ops
