// Rotary position embedding's tables (Su et al., arXiv 2104.09864) with the scalings that
// checkpoints name.
#pragma once

#include <cstdint>
#include <string>

#include "temper/ops/attention.h"

namespace temper::nn {

struct RotaryConfig {
  enum class Kind { kDefault, kLinear, kLlama3 };
  Kind kind = Kind::kDefault;
  double theta = 10000;
  double factor = 1;  // linear: frequencies are divided by it; llama3: the low ones
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3
  double original_max_position_embeddings = 8192;    // llama3
};

// cos and sin for positions 0, 1, ...; grows as longer sequences come. The values depend on the
// position alone.
class Rotary {
 public:
  Rotary(const RotaryConfig& config, int64_t head_dim);
  // Tables of at least `positions` rows, in float32 or float64.
  const ops::RotaryTable& table(int64_t positions, at::ScalarType dtype);

 private:
  std::vector<float> inverse_frequency_;  // [head_dim / 2]
  ops::RotaryTable table_;
};

}  // namespace temper::nn
