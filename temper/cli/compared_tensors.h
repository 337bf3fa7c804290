// Differences between two sets of tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "temper/io/safetensors.h"

namespace temper::cli {

struct TensorDifference {
  std::string name;
  // "[2, 3] and [2, 4]", "BF16 and F32", or empty: the values differ.
  std::string form;
  double largest = 0;  // largest absolute difference of the values; NaN where only one is NaN
};

struct ComparedTensors {
  int64_t compared = 0;  // tensors that both have
  std::vector<TensorDifference> differ;
  std::vector<std::string> only_a, only_b;
  bool equal() const { return differ.empty() && only_a.empty() && only_b.empty(); }
};
ComparedTensors compare_tensors(const TensorMap& a, const TensorMap& b);

// The weights of a model's or adapter's directory. Throws DataError.
TensorMap tensors_of(const std::string& directory);

}  // namespace temper::cli
