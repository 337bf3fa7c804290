#include "temper/models/hf_config.h"

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/models/directory.h"

namespace temper::models {

namespace {

// Of a multimodal config's text_config that does not say it.
std::string type_of_text(const std::string& multimodal) {
  return multimodal == "mistral3" ? "mistral" : multimodal + "_text";
}

}  // namespace

HfConfig HfConfig::load(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  check<ConfigError>(fs::exists(path, ignored), path,
                     ": no such model; expected a directory with config.json");
  const bool is_directory = fs::is_directory(path, ignored);
  check<ConfigError>(is_directory || path.ends_with(".json"), path,
                     ": found a file, expected a model directory", no_model_hint(path));
  const std::string file = is_directory ? path + "/config.json" : path;
  check<ConfigError>(fs::exists(file, ignored), path,
                     ": not a model directory: it has no config.json", no_model_hint(path));
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
                             : type_of_text(config.model_type_);
    for (const char* key : {"eos_token_id", "bos_token_id", "pad_token_id", "tie_word_embeddings",
                            "initializer_range"})
      if (json.contains(key) && (!inner.contains(key) || std::string(key).starts_with("tie_")))
        inner[key] = json[key];  // the head is the outer model's
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

bool HfConfig::is_null(std::string_view key) const {
  const auto it = json_->find(std::string(key));
  return it != json_->end() && it->is_null();
}

int64_t HfConfig::integer(std::string_view key, int64_t fallback, int64_t most) const {
  const Json* value = find(key);
  if (!value) return fallback;
  const bool integer = value->is_number_integer() &&
                       !(value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX);
  if (!integer || value->get<int64_t>() < 1 || value->get<int64_t>() > most)
    fail(key, temper::str("found ", dump_json(*value), ", expected a positive integer",
                          most == INT32_MAX ? "" : temper::str(" up to ", most)));
  return value->get<int64_t>();
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

std::vector<double> HfConfig::numbers(std::string_view key) const {
  std::vector<double> out;
  const Json* list = find(key);
  if (!list) return out;
  if (!list->is_array()) fail(key, "expected a list of numbers");
  for (const Json& value : *list) {
    if (!value.is_number() || !std::isfinite(value.get<double>()))
      fail(key, "found " + dump_json(value) + ", expected a number");
    out.push_back(value.get<double>());
  }
  return out;
}

std::vector<bool> HfConfig::sliding_layers(
    int64_t layers, const std::function<bool(int64_t layer)>& fallback) const {
  std::vector<bool> sliding;
  const Json* types = find("layer_types");
  if (!types) {
    for (int64_t i = 0; i < layers; ++i) sliding.push_back(fallback(i));
    return sliding;
  }
  if (!types->is_array() || static_cast<int64_t>(types->size()) != layers)
    fail("layer_types", temper::str("expected a list of ", layers, " names, one for each layer"));
  for (const Json& type : *types) {
    if (type != "sliding_attention" && type != "full_attention")
      fail("layer_types",
           "found " + dump_json(type) + ", expected sliding_attention or full_attention");
    sliding.push_back(type == "sliding_attention");
  }
  return sliding;
}

HfConfig HfConfig::section(Json json, const std::string& name) const {
  HfConfig part;
  part.where_ = where_ + ": `" + name + "`";
  part.model_type_ = model_type_;
  part.json_ = std::make_shared<const Json>(std::move(json));
  return part;
}

namespace {

// The part of each head that rotates, as `part` or else `fallback` says.
double rotated_share(const HfConfig& part, double fallback, bool may_be_partial) {
  const double share = part.number("partial_rotary_factor", fallback);
  if (share != 1 && !may_be_partial)
    part.fail("partial_rotary_factor",
              temper::str(share, " is not supported; this family rotates whole heads"));
  if (!(share > 0 && share <= 1))
    part.fail("partial_rotary_factor",
              temper::str("found ", share, ", expected a number above 0, up to 1"));
  return share;
}

double above(const HfConfig& config, std::string_view key, double least, double fallback) {
  const double value = config.number(key, fallback);
  if (value <= least) config.fail(key, temper::str("expected a number above ", least));
  return value;
}

// Phi 3's first files call longrope su or yarn.
std::string rope_type(const HfConfig& part) {
  const std::string type = part.text("rope_type", part.text("type", "default"));
  return part.has("short_factor") && (type == "su" || type == "yarn") ? "longrope" : type;
}

void read_longrope(const HfConfig& config, const HfConfig& part, int64_t max_positions,
                   nn::RotaryConfig& rotary) {
  rotary.original_max_position_embeddings =
      above(config, "original_max_position_embeddings", 1, rotary.original_max_position_embeddings);
  rotary.factor =
      above(part, "factor", 0,
            static_cast<double>(max_positions) / rotary.original_max_position_embeddings);
  rotary.attention_factor =
      above(part, "attention_factor", 0,
            nn::longrope_attention_factor(rotary.factor, rotary.original_max_position_embeddings));
  rotary.short_factor = part.numbers("short_factor");
  for (const double divisor : rotary.short_factor)
    if (!(divisor > 0)) part.fail("short_factor", "expected numbers above 0");
}

// rope_type's own keys; `part` is the object of `config` that holds them.
void read_scaling(const HfConfig& config, const HfConfig& part, int64_t max_positions,
                  nn::RotaryConfig& rotary) {
  using Kind = nn::RotaryConfig::Kind;
  const std::string type = rope_type(part);
  if (type == "default") return;
  if (type == "linear")
    rotary.kind = Kind::kLinear;
  else if (type == "llama3")
    rotary.kind = Kind::kLlama3;
  else if (type == "yarn")
    rotary.kind = Kind::kYarn;
  else if (type == "dynamic")
    rotary.kind = Kind::kDynamic;
  else if (type == "longrope")
    rotary.kind = Kind::kLongRope;
  else if (type == "proportional")
    rotary.kind = Kind::kProportional;
  else
    part.fail("rope_type", "`" + type +
                               "` is not supported; expected default, linear, llama3, yarn, "
                               "dynamic, longrope or proportional");
  rotary.original_max_position_embeddings =
      above(part, "original_max_position_embeddings", 0, static_cast<double>(max_positions));
  rotary.max_positions = max_positions;
  if (rotary.kind == Kind::kLongRope) return read_longrope(config, part, max_positions, rotary);
  rotary.factor = above(part, "factor", 0,
                        rotary.kind == Kind::kYarn ? static_cast<double>(max_positions) /
                                                         rotary.original_max_position_embeddings
                                                   : 1);
  rotary.low_freq_factor = part.number("low_freq_factor", 1);
  rotary.high_freq_factor = part.number("high_freq_factor", 4);
  if (rotary.kind != Kind::kYarn) return;
  if (rotary.theta <= 1) part.fail("rope_theta", "yarn expects a number above 1");
  rotary.beta_fast = above(part, "beta_fast", 0, 32);
  rotary.beta_slow = above(part, "beta_slow", 0, 1);
  rotary.truncate = part.boolean("truncate", true);
  const double mscale = part.number("mscale", 0), mscale_all = part.number("mscale_all_dim", 0);
  const double usual = mscale != 0 && mscale_all != 0
                           ? nn::yarn_attention_factor(rotary.factor, mscale) /
                                 nn::yarn_attention_factor(rotary.factor, mscale_all)
                           : nn::yarn_attention_factor(rotary.factor);
  rotary.attention_factor = above(part, "attention_factor", 0, usual);
}

}  // namespace

std::optional<HfConfig> HfConfig::rope_section(std::string_view layer_type) const {
  const Json* parameters = find("rope_parameters");
  const std::string place = parameters ? "rope_parameters" : "rope_scaling";
  if (!parameters) parameters = find("rope_scaling");
  if (!parameters) return std::nullopt;
  if (!parameters->is_object()) fail(place, "expected an object");
  if (!layer_type.empty() && parameters->contains("full_attention")) {
    const auto nested = parameters->find(std::string(layer_type));
    if (nested == parameters->end() || nested->is_null()) return std::nullopt;
    if (!nested->is_object()) fail(place, "expected an object for each kind of layer");
    parameters = &*nested;
  }
  return section(*parameters, place);
}

nn::RotaryConfig HfConfig::rotary(double default_theta, int64_t max_positions,
                                  std::string_view layer_type,
                                  std::optional<double> default_share) const {
  nn::RotaryConfig rotary;
  // Gemma 3's local layers have a base of their own; the config's rope_theta is the others'.
  rotary.theta =
      layer_type == "sliding_attention" ? default_theta : number("rope_theta", default_theta);
  rotary.share = rotated_share(*this, default_share.value_or(1), default_share.has_value());
  const std::optional<HfConfig> part = rope_section(layer_type);
  if (!part) return rotary;
  rotary.share = rotated_share(*part, rotary.share, default_share.has_value());
  rotary.theta = above(*part, "rope_theta", 0, rotary.theta);
  read_scaling(*this, *part, max_positions, rotary);
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
