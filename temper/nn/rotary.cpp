#include "temper/nn/rotary.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "temper/base/error.h"

namespace temper::nn {

// float32 throughout, in the order in which transformers computes it: at position 10,000 one unit
// in the last place of a frequency is visible in the logits.
Rotary::Rotary(const RotaryConfig& config, int64_t head_dim) {
  check<ConfigError>(head_dim > 0 && head_dim % 2 == 0, "head_dim must be even, found ", head_dim);
  for (int64_t i = 0; i < head_dim; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(head_dim);
    float frequency =
        1.0f / static_cast<float>(std::pow(config.theta, static_cast<double>(exponent)));
    const float factor = static_cast<float>(config.factor);
    if (config.kind == RotaryConfig::Kind::kLinear) frequency /= factor;
    if (config.kind == RotaryConfig::Kind::kLlama3) {
      const float wavelength = static_cast<float>(2 * std::numbers::pi) / frequency;
      const float old_length = static_cast<float>(config.original_max_position_embeddings);
      const float low = static_cast<float>(config.low_freq_factor),
                  high = static_cast<float>(config.high_freq_factor);
      if (wavelength > old_length / low) {
        frequency /= factor;
      } else if (wavelength >= old_length / high) {
        const float smooth = (old_length / wavelength - low) / (high - low);
        frequency = (1 - smooth) * frequency / factor + smooth * frequency;
      }
    }
    inverse_frequency_.push_back(frequency);
  }
}

const ops::RotaryTable& Rotary::table(int64_t positions, at::ScalarType dtype) {
  if (table_.cos.defined() && table_.cos.size(0) >= positions && table_.cos.scalar_type() == dtype)
    return table_;
  const int64_t rows = std::max<int64_t>(256, (positions + 255) / 256 * 256);
  const int64_t half = static_cast<int64_t>(inverse_frequency_.size());
  at::Tensor cos = at::empty({rows, half}, at::kDouble), sin = at::empty({rows, half}, at::kDouble);
  double* c = cos.mutable_data_ptr<double>();
  double* s = sin.mutable_data_ptr<double>();
  for (int64_t p = 0; p < rows; ++p)
    for (int64_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(p) * inverse_frequency_[static_cast<size_t>(i)];
      c[p * half + i] = std::cos(static_cast<double>(angle));
      s[p * half + i] = std::sin(static_cast<double>(angle));
    }
  table_ = {cos.to(dtype), sin.to(dtype)};
  return table_;
}

}  // namespace temper::nn
