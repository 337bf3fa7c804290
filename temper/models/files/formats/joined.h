// Quantized matrices one below the other, as a mixture's gate and up projections are.
#pragma once

#include <vector>

#include "temper/models/files/checkpoint_format.h"

namespace temper::models {

// Whether views of one dtype and width have codes of one format, so that they can be kept as one.
bool are_coded_alike(const std::vector<TensorView>& parts);
// The rows of all, in this order.
TensorView joined_codes(const std::vector<TensorView>& parts);

}  // namespace temper::models
