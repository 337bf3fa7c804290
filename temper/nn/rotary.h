// Rotary position embedding's tables (Su et al., arXiv 2104.09864) with the scalings that
// checkpoints name.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "temper/ops/layers/attention.h"

namespace temper::nn {

struct RotaryConfig {
  // kYarn: Peng et al., arXiv 2309.00071. kDynamic: rotates as kDefault up to max_positions; beyond
  // it transformers makes every token's rotation depend on the length of the longest sequence of
  // the batch, which no cache and no other batch would agree with, so longer sequences are refused.
  // kLongRope (Ding et al., arXiv 2402.13753): frequencies are divided by short_factor. Sequences
  // beyond original_max_position_embeddings, for which transformers divides by another list, are
  // refused for the same reason.
  // kProportional (Gemma 4): as kDefault, divided by the factor, but only the first `share` of the
  // frequencies; the others are 0.
  enum class Kind { kDefault, kLinear, kLlama3, kYarn, kDynamic, kLongRope, kProportional };
  Kind kind = Kind::kDefault;
  double theta = 10000;
  double factor = 1;  // linear: frequencies are divided by it; llama3 and yarn: the low ones
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3
  double original_max_position_embeddings = 8192;    // llama3, yarn, longrope, query_scale_beta
  double beta_fast = 32, beta_slow = 1;              // yarn: rotations between which it blends
  bool truncate = true;                // yarn: the blend begins and ends at whole dimensions
  double attention_factor = 1;         // yarn, longrope: cosines and sines are multiplied by it
  int64_t max_positions = 0;           // dynamic: the longest sequence; 0: any
  std::vector<double> short_factor{};  // longrope: one for each frequency
  double share = 1;                    // the first int(head_dim share) features of a head rotate
  bool interleaved = false;            // ops::RotaryTable
  // Queries at position p are multiplied by 1 + beta ln(1 + floor(p /
  // original_max_position_embeddings)) (Llama 4's temperature); 0: they are not.
  double query_scale_beta = 0;
  // How many frequencies rotate by each axis of Forest::rotation; all 0: by position alone.
  // Interleaved (Qwen3-VL): frequency i rotates by the row where i % 3 = 1 and i < 3 sections[1],
  // by the column where i % 3 = 2 and i < 3 sections[2], else by time; else they follow one another
  // (Qwen2.5-VL).
  std::array<int64_t, 3> sections{};
  bool sections_interleaved = false;
};

// yarn's factor of cosines and sines where the config does not give one: 0.1 mscale ln(factor) + 1,
// and 1 for factors up to 1.
double yarn_attention_factor(double factor, double mscale = 1);
// longrope's: sqrt(1 + ln(factor) / ln(original_max_position_embeddings)), 1 for factors up to 1.
double longrope_attention_factor(double factor, double original_max_position_embeddings);

// cos and sin for positions 0, 1, ...; grows as longer sequences come. The values depend on the
// position alone. Several threads may ask at once.
class Rotary {
 public:
  // Throws ConfigError for a head_dim that cannot be rotated.
  Rotary(const RotaryConfig& config, int64_t head_dim);
  // Tables of at least `positions` rows, in float32 or float64, where `like` says. What is returned
  // never changes: a longer table is another one. Throws ConfigError for more positions than the
  // config allows.
  ops::RotaryTable table(int64_t positions, const at::TensorOptions& like) const;
  // The same for a forest's tokens: by token where it has rotary positions of three axes, and the
  // config has sections.
  ops::RotaryTable table(const Forest& forest, const at::TensorOptions& like) const;

  const std::vector<float>& inverse_frequency() const { return inverse_frequency_; }

 private:
  void check_length(int64_t positions) const;
  void set_axes();

  RotaryConfig config_;
  std::vector<float> inverse_frequency_;  // [rotated / 2]
  std::vector<size_t> axis_;              // [rotated / 2], of Forest::rotation; empty: no sections
  mutable std::mutex mutex_;
  mutable ops::RotaryTable table_;  // the longest that was asked for
};

}  // namespace temper::nn
