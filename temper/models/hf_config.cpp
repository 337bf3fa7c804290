#include "temper/models/hf_config.h"

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"

namespace temper::models {

HfConfig HfConfig::load(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  check<ConfigError>(fs::exists(path, ignored), path,
                     ": no such model; expected a directory with config.json");
  const std::string file = fs::is_directory(path, ignored) ? path + "/config.json" : path;
  check<ConfigError>(fs::exists(file, ignored), path,
                     ": not a model directory: it has no config.json");
  return parse(read_json_file(file, size_t{64} << 20), file);
}

HfConfig HfConfig::parse(Json json, std::string where) {
  check<ConfigError>(json.is_object(), where, ": expected a JSON object");
  HfConfig config;
  config.where_ = std::move(where);
  const auto type = json.find("model_type");
  check<ConfigError>(type != json.end() && type->is_string(), config.where_,
                     ": `model_type` is missing; it names the family");
  config.model_type_ = type->get<std::string>();
  const auto text = json.find("text_config");
  if (text != json.end() && text->is_object()) {
    // A multimodal checkpoint: its language model is what Temper runs.
    Json inner = *text;
    config.multimodal_ = true;
    const auto inner_type = inner.find("model_type");
    config.model_type_ = inner_type != inner.end() && inner_type->is_string()
                             ? inner_type->get<std::string>()
                             : config.model_type_ + "_text";
    for (const char* key : {"eos_token_id", "bos_token_id", "pad_token_id", "tie_word_embeddings",
                            "initializer_range"})
      if (!inner.contains(key) && json.contains(key)) inner[key] = json[key];
    config.json_ = std::make_shared<const Json>(std::move(inner));
  } else {
    config.json_ = std::make_shared<const Json>(std::move(json));
  }
  return config;
}

void HfConfig::fail(std::string_view key, const std::string& problem) const {
  throw ConfigError(temper::str(where_, ": `", key, "`: ", problem));
}

const Json* HfConfig::find(std::string_view key) const {
  const auto it = json_->find(std::string(key));
  return it == json_->end() || it->is_null() ? nullptr : &*it;
}
bool HfConfig::has(std::string_view key) const { return find(key) != nullptr; }

int64_t HfConfig::integer(std::string_view key) const {
  const Json* value = find(key);
  if (!value) fail(key, "missing; expected a positive integer");
  if (!value->is_number_integer() || value->get<int64_t>() < 1 || value->get<int64_t>() > INT32_MAX)
    fail(key, "found " + dump_json(*value) + ", expected a positive integer");
  return value->get<int64_t>();
}
int64_t HfConfig::integer(std::string_view key, int64_t fallback) const {
  return has(key) ? integer(key) : fallback;
}

double HfConfig::number(std::string_view key, double fallback) const {
  const Json* value = find(key);
  if (!value) return fallback;
  if (!value->is_number() || !std::isfinite(value->get<double>()))
    fail(key, "found " + dump_json(*value) + ", expected a number");
  return value->get<double>();
}
bool HfConfig::boolean(std::string_view key, bool fallback) const {
  const Json* value = find(key);
  if (!value) return fallback;
  if (!value->is_boolean()) fail(key, "found " + dump_json(*value) + ", expected true or false");
  return value->get<bool>();
}
std::string HfConfig::text(std::string_view key, std::string fallback) const {
  const Json* value = find(key);
  if (!value) return fallback;
  if (!value->is_string()) fail(key, "found " + dump_json(*value) + ", expected text");
  return value->get<std::string>();
}

std::vector<bool> HfConfig::sliding_layers(int64_t layers,
                                           const std::vector<bool>& fallback) const {
  const Json* types = find("layer_types");
  if (!types) return fallback;
  if (!types->is_array() || static_cast<int64_t>(types->size()) != layers)
    fail("layer_types", temper::str("expected a list of ", layers, " names, one for each layer"));
  std::vector<bool> sliding;
  for (const Json& type : *types) {
    if (type != "sliding_attention" && type != "full_attention")
      fail("layer_types",
           "found " + dump_json(type) + ", expected sliding_attention or full_attention");
    sliding.push_back(type == "sliding_attention");
  }
  return sliding;
}

nn::RotaryConfig HfConfig::rotary(double default_theta, std::string_view layer_type) const {
  nn::RotaryConfig rotary;
  rotary.theta = number("rope_theta", default_theta);
  const Json* parameters = find("rope_parameters");
  std::string_view place = "rope_parameters";
  if (!parameters) {
    parameters = find("rope_scaling");
    place = "rope_scaling";
  }
  const auto refuse_partial = [](const HfConfig& config) {
    const double share = config.number("partial_rotary_factor", 1);
    if (share != 1)
      config.fail("partial_rotary_factor",
                  temper::str(share, " is not supported; these families rotate whole heads"));
  };
  refuse_partial(*this);
  if (!parameters) return rotary;
  if (!parameters->is_object()) fail(place, "expected an object");
  if (!layer_type.empty() && parameters->contains("full_attention")) {
    const auto nested = parameters->find(std::string(layer_type));
    if (nested == parameters->end() || nested->is_null()) return rotary;
    parameters = &*nested;
  }
  HfConfig part =
      parse(Json{{"model_type", model_type_}}, where_ + ": `" + std::string(place) + "`");
  part.json_ = std::make_shared<const Json>(*parameters);
  refuse_partial(part);
  rotary.theta = part.number("rope_theta", rotary.theta);
  if (rotary.theta <= 0) part.fail("rope_theta", "expected a number above 0");
  const std::string type = part.text("rope_type", part.text("type", "default"));
  if (type == "default") return rotary;
  if (type != "linear" && type != "llama3")
    part.fail("rope_type", "`" + type + "` is not supported; expected default, linear or llama3");
  rotary.kind =
      type == "linear" ? nn::RotaryConfig::Kind::kLinear : nn::RotaryConfig::Kind::kLlama3;
  rotary.factor = part.number("factor", 1);
  if (rotary.factor <= 0) part.fail("factor", "expected a number above 0");
  rotary.low_freq_factor = part.number("low_freq_factor", 1);
  rotary.high_freq_factor = part.number("high_freq_factor", 4);
  rotary.original_max_position_embeddings =
      part.number("original_max_position_embeddings", number("max_position_embeddings", 8192));
  return rotary;
}

ops::Activation HfConfig::activation(std::string_view key, std::string fallback) const {
  const std::string name = text(key, std::move(fallback));
  if (name == "silu" || name == "swish") return ops::Activation::kSilu;
  if (name == "gelu_pytorch_tanh" || name == "gelu_new" || name == "gelu_tanh")
    return ops::Activation::kGeluTanh;
  if (name == "gelu") return ops::Activation::kGelu;
  fail(key, "`" + name + "` is not supported; expected silu, gelu_pytorch_tanh or gelu");
}

}  // namespace temper::models
