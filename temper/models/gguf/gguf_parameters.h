// The tensors of a GGUF file as those of a model.
#pragma once

#include <string>

#include "temper/io/gguf.h"
#include "temper/models/files/hf_config.h"

namespace temper::models {

// By the model's own names: the tensors of which gguf_pieces says how they are made of parameters,
// turned back. Rows that the file has in another order, or in several tensors, are put together
// when they are read; matrices in block formats are CodedMatrix where all of their rows are in one
// format. Tensors that no parameter is made of keep their names, so that an error names them.
// Throws DataError for a tensor of another shape.
TensorMap gguf_parameters(const GgufFile& file, const HfConfig& config, const std::string& where);

}  // namespace temper::models
