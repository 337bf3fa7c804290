// A safetensors file that is sent instead of written.
#pragma once

#include <string>

#include "temper/io/safetensors.h"

namespace temper {

// What write_safetensors would write.
std::string safetensors_bytes(const TensorMap& tensors);

}  // namespace temper
