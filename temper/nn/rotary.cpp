#include "temper/nn/rotary.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "temper/base/error.h"
#include "temper/base/exact_math.h"

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
             exact::log(config.original_max_position_embeddings /
                        (rotations * 2 * std::numbers::pi)) /
             (2 * exact::log(config.theta));
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

double std_cos(double x) { return std::cos(x); }
double std_sin(double x) { return std::sin(x); }

// factor times the cosine, or sine, of the angle: in double, or as it is rounded to float.
double turned(double factor, float angle, bool wide, double (*quick)(double),
              double (*exactly)(double)) {
  const double x = static_cast<double>(angle);
  if (wide) return factor * exactly(x);
  return static_cast<double>(
      exact::rounded(factor * quick(x), [&] { return factor * exactly(x); }));
}

}  // namespace

double yarn_attention_factor(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * exact::log(factor) + 1.0;
}

double longrope_attention_factor(double factor, double original_max_position_embeddings) {
  if (factor <= 1) return 1;
  return std::sqrt(1 + exact::log(factor) / exact::log(original_max_position_embeddings));
}

Rotary::Rotary(const RotaryConfig& config, int64_t head_dim) : config_(config) {
  check<ConfigError>(head_dim > 0 && head_dim % 2 == 0 && head_dim <= kMostHeadDim,
                     "head_dim: found ", head_dim, ", expected an even number up to ",
                     kMostHeadDim);
  const bool proportional = config.kind == RotaryConfig::Kind::kProportional;
  const double part = static_cast<double>(head_dim) * config.share;
  const int64_t rotated = proportional ? head_dim : static_cast<int64_t>(part);
  // Of an odd number of features one more rotates, by powers of theta over that number.
  const bool may_be_odd = config.kind != RotaryConfig::Kind::kYarn;
  check<ConfigError>(rotated > 0 && (may_be_odd || rotated % 2 == 0) && rotated <= head_dim,
                     "partial_rotary_factor: ", config.share, " of heads of ", head_dim,
                     " features are ", rotated, ", expected ", may_be_odd ? "a" : "an even",
                     " number from 1 to ", head_dim);
  const int64_t pairs = (rotated + 1) / 2;
  const bool longrope = config.kind == RotaryConfig::Kind::kLongRope;
  check<ConfigError>(!longrope || static_cast<int64_t>(config.short_factor.size()) == pairs,
                     "short_factor: found ", config.short_factor.size(), " numbers, expected ",
                     pairs, ", one for each pair of rotated features");
  const float factor = static_cast<float>(config.factor);
  const double theta = static_cast<float>(config.theta);  // as float32, transformers' powers are
  const YarnRange yarn(config, rotated);
  for (int64_t i = 0; i < rotated; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(rotated);
    const float wavelength = static_cast<float>(exact::pow(theta, static_cast<double>(exponent)));
    float frequency = 1.0f / wavelength;
    if (config.kind == RotaryConfig::Kind::kLinear || proportional) frequency /= factor;
    if (proportional && i / 2 >= static_cast<int64_t>(part / 2)) frequency = 0;
    if (config.kind == RotaryConfig::Kind::kLlama3) frequency = llama3(config, frequency);
    if (config.kind == RotaryConfig::Kind::kYarn) {
      const float kept = 1 - yarn.blend(i / 2);
      frequency = 1.0f / (factor * wavelength) * (1 - kept) + frequency * kept;
    }
    if (longrope)
      frequency =
          1.0f / (static_cast<float>(config.short_factor[static_cast<size_t>(i / 2)]) * wavelength);
    inverse_frequency_.push_back(frequency);
  }
  set_axes();
}

void Rotary::set_axes() {
  const auto& [time, rows, columns] = config_.sections;
  if (time == 0 && rows == 0 && columns == 0) return;
  const int64_t pairs = std::ssize(inverse_frequency_);
  check<ConfigError>(config_.sections_interleaved || time + rows + columns == pairs,
                     "mrope_section: ", time, ", ", rows, " and ", columns, " of ", pairs,
                     " rotary frequencies; expected as many in all");
  for (int64_t i = 0; i < pairs; ++i) {
    const bool interleaved = config_.sections_interleaved;
    const bool of_row = interleaved ? i % 3 == 1 && i < 3 * rows : i >= time && i < time + rows,
               of_column = interleaved ? i % 3 == 2 && i < 3 * columns : i >= time + rows;
    axis_.push_back(of_row ? 1 : of_column ? 2 : 0);
  }
}

void Rotary::check_length(int64_t positions) const {
  using Kind = RotaryConfig::Kind;
  check<ConfigError>(
      config_.kind != Kind::kDynamic || config_.max_positions == 0 ||
          positions <= config_.max_positions,
      "a sequence of ", positions, " tokens, and with `rope_type` dynamic the model takes at most ",
      config_.max_positions,
      " (max_position_embeddings): beyond that a token's rotation would depend on what else is in "
      "the batch; yarn and linear do not");
  check<ConfigError>(
      config_.kind != Kind::kLongRope ||
          static_cast<double>(positions) <= config_.original_max_position_embeddings,
      "a sequence of ", positions,
      " tokens, and with `rope_type` longrope the model takes at most ",
      config_.original_max_position_embeddings,
      " (original_max_position_embeddings): a longer one would rotate all tokens by long_factor, "
      "those before the limit too. To use long_factor for every length, give it as short_factor, "
      "with the limit wanted and the attention_factor that the model has now");
}

ops::RotaryTable Rotary::table(int64_t positions, const at::TensorOptions& like) const {
  check_length(positions);
  const std::lock_guard lock(mutex_);
  if (table_.cos.defined() && table_.cos.size(0) >= positions &&
      table_.cos.dtype() == like.dtype() && table_.cos.device() == like.device())
    return table_;
  const int64_t rows = std::max<int64_t>(256, (positions + 255) / 256 * 256);
  const int64_t half = static_cast<int64_t>(inverse_frequency_.size());
  using Kind = RotaryConfig::Kind;
  const bool scaled = config_.kind == Kind::kYarn || config_.kind == Kind::kLongRope;
  const double factor = scaled ? config_.attention_factor : 1;
  if (like.device().is_meta()) {  // sizes alone
    table_ = {at::empty({rows, half}, like), at::empty({rows, half}, like), config_.interleaved};
    if (config_.query_scale_beta != 0) table_.query_scale = at::empty({rows}, like);
    return table_;
  }
  at::Tensor cos = at::empty({rows, half}, at::kDouble), sin = at::empty({rows, half}, at::kDouble);
  const bool wide = like.dtype() == at::kDouble;
  double* c = cos.mutable_data_ptr<double>();
  double* s = sin.mutable_data_ptr<double>();
  for (int64_t p = 0; p < rows; ++p)
    for (int64_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(p) * inverse_frequency_[static_cast<size_t>(i)];
      c[p * half + i] = turned(factor, angle, wide, &std_cos, &exact::cos);
      s[p * half + i] = turned(factor, angle, wide, &std_sin, &exact::sin);
    }
  table_ = {cos.to(like), sin.to(like), config_.interleaved};
  if (config_.query_scale_beta == 0) return table_;
  at::Tensor scale = at::empty({rows}, at::kDouble);
  for (int64_t p = 0; p < rows; ++p)
    scale.mutable_data_ptr<double>()[p] =
        1 + config_.query_scale_beta *
                exact::log1p(
                    std::floor(static_cast<double>(p) / config_.original_max_position_embeddings));
  table_.query_scale = scale.to(like);
  return table_;
}

ops::RotaryTable Rotary::table(const Forest& forest, const at::TensorOptions& like) const {
  const std::vector<int64_t>& position = forest.position;
  // Rotary positions are never beyond positions.
  const ops::RotaryTable all = table(*std::max_element(position.begin(), position.end()) + 1, like);
  if (forest.rotation.empty() || axis_.empty()) return all;
  const int64_t tokens = forest.num_tokens(), pairs = std::ssize(axis_);
  at::Tensor row = at::empty({tokens, pairs}, at::kLong);
  int64_t* to = row.mutable_data_ptr<int64_t>();
  for (const std::array<int32_t, 3>& of_token : forest.rotation)
    for (const size_t axis : axis_) *to++ = of_token[axis];
  row = row.to(like.device());
  ops::RotaryTable by_token{
      all.cos.gather(0, row), all.sin.gather(0, row), all.interleaved, {}, true};
  if (all.query_scale.defined())
    by_token.query_scale =
        all.query_scale.index_select(0, at::tensor(position, at::kLong).to(like.device()));
  return by_token;
}

}  // namespace temper::nn
