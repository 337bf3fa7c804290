// Files of torch.save: a state dict of tensors, read by an unpickler that knows tensors and nothing
// else. Nothing that a file names is ever executed.
#pragma once

#include <span>
#include <string>

#include "temper/io/safetensors.h"

namespace temper {

// The zip form (torch 1.6 and later) and the legacy form. Throws DataError that names what the file
// asks for.
TensorMap read_torch_file(const std::string& path);
TensorMap parse_torch_file(std::span<const std::byte> bytes, const std::string& where,
                           std::shared_ptr<const void> owner);

}  // namespace temper
