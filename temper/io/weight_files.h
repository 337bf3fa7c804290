// The weights of a model directory, whatever form they have.
#pragma once

#include <string>

#include "temper/io/mapped_files.h"
#include "temper/io/safetensors.h"

namespace temper {

// model.safetensors, its shards by model.safetensors.index.json, pytorch_model.bin or its shards.
// Names of shards stay inside the directory; a shard or tensor that the index promises and that is
// absent is named. The files that the tensors are mapped from are added to `files`. Throws
// DataError.
TensorMap read_weights(const std::string& directory, MappedFiles* files = nullptr);

}  // namespace temper
