// The tensors of a repeated step, as lines of a file: what a rank trained in it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "temper/base/json.h"
#include "temper/train/roles/roles.h"

namespace temper::cli {

// Appends a line for each tensor that a rank trains (its part, where ranks share it out): when,
// name, shape, norm, min, max, digest (SHA-256 of its bytes). `when` is "weight" (before the step),
// "gradient" (summed over the ranks, before clipping) or "updated". Throws RunError.
void add_step_tensors(const std::string& file, const char* when,
                      const train::Trainables& trainables);

struct StepTensor {
  int rank = 0;
  std::string when, name, digest;
  std::vector<int64_t> shape;
  double norm = 0, min = 0, max = 0;
  // "weight model.norm.weight [64] rank 0: norm 8, -1 to 2, 5e884898da280471"
  std::string text() const;
  // Whether it is the same tensor, whatever its values.
  bool is(const StepTensor& other) const {
    return rank == other.rank && when == other.when && name == other.name;
  }
};
// Throws DataError.
std::vector<StepTensor> read_step_tensors(const std::string& file, int rank);

}  // namespace temper::cli
