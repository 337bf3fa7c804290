// config.json of a Hugging Face model, as transformers 4 and 5 write it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "temper/base/json.h"
#include "temper/nn/rotary.h"
#include "temper/ops/layers/linear.h"

namespace temper::models {

// Typed access to the keys of one config; errors name the file and the key. For a multimodal
// checkpoint this is its text_config.
class HfConfig {
 public:
  // path: config.json or a directory that holds it. Throws ConfigError.
  static HfConfig load(const std::string& path);
  static HfConfig parse(Json json, std::string where);

  const std::string& model_type() const { return model_type_; }
  const std::string& where() const { return where_; }
  const Json& json() const { return *json_; }
  bool multimodal() const { return multimodal_; }
  // The directory, or GGUF file, that it was read from.
  std::string directory() const;

  bool has(std::string_view key) const;      // present and not null
  bool is_null(std::string_view key) const;  // present and null
  // A positive integer up to `most`.
  int64_t integer(std::string_view key, int64_t fallback, int64_t most = INT32_MAX) const;
  double number(std::string_view key, double fallback) const;
  bool boolean(std::string_view key, bool fallback) const;
  std::string text(std::string_view key, std::string fallback) const;

  // Whether each layer attends to a window: from layer_types, else by the family's `fallback`.
  std::vector<bool> sliding_layers(int64_t layers,
                                   const std::function<bool(int64_t layer)>& fallback) const;

  // Rotary parameters: rope_parameters (nested by layer type in Gemma 3), else rope_theta and
  // rope_scaling. max_positions: the model's max_position_embeddings. default_share: of families
  // that rotate a part of each head, which part where partial_rotary_factor does not say; others
  // rotate whole heads.
  nn::RotaryConfig rotary(double default_theta, int64_t max_positions,
                          std::string_view layer_type = "",
                          std::optional<double> default_share = std::nullopt) const;
  // Sets the sections of rotary embedding by three axes, `usual` where the config does not have
  // them; a config of text alone without them keeps none.
  void read_sections(nn::RotaryConfig& rotary, std::array<int64_t, 3> usual,
                     bool interleaved) const;
  // The object that holds them, for keys of a family's own; nullopt: there is none.
  std::optional<HfConfig> rope_section(std::string_view layer_type = "") const;
  // A list of numbers; empty where the key is missing.
  std::vector<double> numbers(std::string_view key) const;

  // The activation that `key` names, or the one that transformers calls `fallback`.
  ops::Activation activation(std::string_view key, std::string fallback) const;

  [[noreturn]] void fail(std::string_view key, const std::string& problem) const;

 private:
  const Json* find(std::string_view key) const;
  HfConfig section(Json json, const std::string& name) const;
  std::shared_ptr<const Json> json_;
  std::string where_, model_type_;
  bool multimodal_ = false;
};

}  // namespace temper::models
