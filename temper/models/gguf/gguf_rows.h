// Matrices whose rows lie in tensors of a GGUF file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "temper/io/gguf.h"
#include "temper/models/gguf/gguf_form.h"

namespace temper::models {

// A tensor, or an entry of its first dimension.
struct GgufStored {
  TensorView bytes;  // of floats: the tensor itself
  std::optional<gguf::BlockType> block;
  int64_t count = 0, width = 0;  // rows, and the values of one

  size_t row_bytes() const { return bytes.num_bytes / static_cast<size_t>(count); }
  // The float32 values [count, width].
  at::Tensor values() const;
};

// Which row of which part each row of a matrix is; empty: those of the one part in order.
using GgufRowMap = std::vector<std::pair<uint32_t, int64_t>>;

// A tensor of this shape whose rows are rows of the parts, all of them floats of one dtype, or all
// in one block format.
TensorView gguf_rows(std::vector<GgufStored> parts, GgufRowMap rows, std::vector<int64_t> shape,
                     const std::string& place);

}  // namespace temper::models
