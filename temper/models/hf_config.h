// config.json of a Hugging Face model, as transformers 4 and 5 write it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "temper/base/json.h"
#include "temper/nn/rotary.h"
#include "temper/ops/linear.h"

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

  bool has(std::string_view key) const;                           // present and not null
  int64_t integer(std::string_view key, int64_t fallback) const;  // positive, at most 2^31
  int64_t integer(std::string_view key) const;                    // required
  double number(std::string_view key, double fallback) const;
  bool boolean(std::string_view key, bool fallback) const;
  std::string text(std::string_view key, std::string fallback) const;

  // Whether each layer attends to a window: from layer_types, else by the family's `fallback`.
  std::vector<bool> sliding_layers(int64_t layers, const std::vector<bool>& fallback) const;

  // Rotary parameters: rope_parameters (nested by layer type in Gemma 3), else rope_theta and
  // rope_scaling.
  nn::RotaryConfig rotary(double default_theta, std::string_view layer_type = "") const;

  // The activation that `key` names, or the one that transformers calls `fallback`.
  ops::Activation activation(std::string_view key, std::string fallback) const;

  [[noreturn]] void fail(std::string_view key, const std::string& problem) const;

 private:
  const Json* find(std::string_view key) const;
  std::shared_ptr<const Json> json_;
  std::string where_, model_type_;
  bool multimodal_ = false;
};

}  // namespace temper::models
