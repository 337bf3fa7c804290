#include "temper/nn/rotary.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "temper/base/error.h"

namespace temper::nn {
namespace {

constexpr int64_t kMostHeadDim = 65536;  // far above any model's: a damaged config is refused

// A number divided by a tensor as PyTorch computes it: the number times the tensor's reciprocal.
float over(float number, float divisor) { return 1 / divisor * number; }

// float32 throughout, in the order in which transformers computes it: at position 10,000 one unit
// in the last place of a frequency is visible in the logits.
float llama3(const RotaryConfig& config, float frequency) {
  const float factor = static_cast<float>(config.factor);
  const float wavelength = over(static_cast<float>(2 * std::numbers::pi), frequency);
  const float old_length = static_cast<float>(config.original_max_position_embeddings);
  const float low = static_cast<float>(config.low_freq_factor),
              high = static_cast<float>(config.high_freq_factor);
  if (wavelength > old_length / low) return frequency / factor;
  if (wavelength < old_length / high) return frequency;
  const float smooth = (over(old_length, wavelength) - low) / (high - low);
  return (1 - smooth) * frequency / factor + smooth * frequency;
}

// Where yarn passes from the trained frequencies to the divided ones: between two dimensions.
struct YarnRange {
  YarnRange(const RotaryConfig& config, int64_t head_dim) {
    const double dimensions = static_cast<double>(head_dim);
    const auto dimension_of = [&](double rotations) {
      return dimensions *
             std::log(config.original_max_position_embeddings /
                      (rotations * 2 * std::numbers::pi)) /
             (2 * std::log(config.theta));
    };
    low = dimension_of(config.beta_fast);
    high = dimension_of(config.beta_slow);
    if (config.truncate) {
      low = std::floor(low);
      high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, dimensions - 1);
    if (low == high) high += 0.001;
  }
  // 0: the trained frequency, 1: divided by the factor.
  float blend(int64_t pair) const {
    const float ramp =
        (static_cast<float>(pair) - static_cast<float>(low)) / static_cast<float>(high - low);
    return std::clamp(ramp, 0.0f, 1.0f);
  }
  double low, high;
};

}  // namespace

double yarn_attention_factor(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

Rotary::Rotary(const RotaryConfig& config, int64_t head_dim)
    : attention_factor_(config.kind == RotaryConfig::Kind::kYarn ? config.attention_factor : 1),
      max_positions_(config.kind == RotaryConfig::Kind::kDynamic ? config.max_positions : 0) {
  check<ConfigError>(head_dim > 0 && head_dim % 2 == 0 && head_dim <= kMostHeadDim,
                     "head_dim: found ", head_dim, ", expected an even number up to ",
                     kMostHeadDim);
  const float factor = static_cast<float>(config.factor);
  const double theta = static_cast<float>(config.theta);  // as float32, transformers' powers are
  const YarnRange yarn(config, head_dim);
  for (int64_t i = 0; i < head_dim; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(head_dim);
    const float wavelength = static_cast<float>(std::pow(theta, static_cast<double>(exponent)));
    float frequency = 1.0f / wavelength;
    if (config.kind == RotaryConfig::Kind::kLinear) frequency /= factor;
    if (config.kind == RotaryConfig::Kind::kLlama3) frequency = llama3(config, frequency);
    if (config.kind == RotaryConfig::Kind::kYarn) {
      const float kept = 1 - yarn.blend(i / 2);
      frequency = 1.0f / (factor * wavelength) * (1 - kept) + frequency * kept;
    }
    inverse_frequency_.push_back(frequency);
  }
}

ops::RotaryTable Rotary::table(int64_t positions, const at::TensorOptions& like) const {
  check<ConfigError>(max_positions_ == 0 || positions <= max_positions_, "a sequence of ",
                     positions, " tokens, and with `rope_type` dynamic the model takes at most ",
                     max_positions_,
                     " (max_position_embeddings): beyond that a token's rotation would depend on "
                     "what else is in the batch; yarn and linear do not");
  const std::lock_guard lock(mutex_);
  if (table_.cos.defined() && table_.cos.size(0) >= positions &&
      table_.cos.dtype() == like.dtype() && table_.cos.device() == like.device())
    return table_;
  const int64_t rows = std::max<int64_t>(256, (positions + 255) / 256 * 256);
  const int64_t half = static_cast<int64_t>(inverse_frequency_.size());
  at::Tensor cos = at::empty({rows, half}, at::kDouble), sin = at::empty({rows, half}, at::kDouble);
  double* c = cos.mutable_data_ptr<double>();
  double* s = sin.mutable_data_ptr<double>();
  for (int64_t p = 0; p < rows; ++p)
    for (int64_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(p) * inverse_frequency_[static_cast<size_t>(i)];
      c[p * half + i] = attention_factor_ * std::cos(static_cast<double>(angle));
      s[p * half + i] = attention_factor_ * std::sin(static_cast<double>(angle));
    }
  table_ = {cos.to(like), sin.to(like)};
  return table_;
}

}  // namespace temper::nn
