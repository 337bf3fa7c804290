// Threads that share the machine's processors, such as one that samples while another trains.
#pragma once

#include "temper/ops/native/kernels/processors.h"

namespace temper::ops {

using kernels::follow_processors;
using kernels::ProcessorCount;

}  // namespace temper::ops
