// Reads every byte that a file's tensors claim, so that a view out of bounds shows.
#pragma once

#include <cstddef>
#include <cstdlib>

#include "temper/io/safetensors.h"

// size: of the file.
inline void read_tensors(const temper::TensorMap& tensors, size_t size) {
  size_t total = 0;
  unsigned sum = 0;
  for (const auto& [name, view] : tensors) {
    if (temper::shape_bytes(view.shape, view.dtype) != view.num_bytes) std::abort();
    for (size_t i = 0; i < view.num_bytes; ++i) sum += static_cast<unsigned>(view.data[i]);
    total += view.num_bytes;
  }
  if (total > size || sum == 1u << 31) std::abort();  // no two tensors share a byte
}
