// A safetensors file that is sent instead of written.
#pragma once

#include <string>

#include "temper/io/safetensors.h"

namespace temper {

// The bytes of the file that write_safetensors writes.
std::string safetensors_bytes(const TensorMap& tensors);

}  // namespace temper
