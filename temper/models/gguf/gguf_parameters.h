// The tensors of a GGUF file as those of a model.
#pragma once

#include <string>

#include "temper/io/gguf.h"
#include "temper/models/files/hf_config.h"

namespace temper::models {

// The model's parameters by their own names, made from the file's tensors (the inverse of
// gguf_pieces). Rows that the file has in another order, or in several tensors, are put together
// when they are read; matrices whose rows are all in one block format are CodedMatrix. Tensors that
// belong to no parameter keep their names, so that an error names them. Throws DataError for a
// tensor of another shape.
TensorMap gguf_parameters(const GgufFile& file, const HfConfig& config, const std::string& where);

}  // namespace temper::models
