#include "temper/models/files/hf_config.h"

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/models/config_values.h"
#include "temper/models/files/directory.h"
#include "temper/models/files/untied_head.h"

namespace temper::models {

namespace {

// Of a multimodal config's text_config that does not say it.
std::string type_of_text(const std::string& multimodal) {
  return multimodal == "mistral3" ? "mistral" : multimodal + "_text";
}

// Language models that have a type of their own within a multimodal model, and are another family
// alone: that family, and the defaults of the type that differ.
struct TextAlias {
  const char *type, *family;
  int64_t max_position_embeddings;
  double rope_theta;
};
constexpr TextAlias kTextAliases[] = {{"qwen3_vl_text", "qwen3", 128000, 500000},
                                      {"qwen2_5_vl_text", "qwen2", 32768, 1000000}};

void use_alias(std::string& type, Json& text) {
  for (const TextAlias& alias : kTextAliases) {
    if (type != alias.type) continue;
    type = alias.family;
    if (!text.contains("max_position_embeddings"))
      text["max_position_embeddings"] = alias.max_position_embeddings;
    if (!text.contains("rope_theta")) text["rope_theta"] = alias.rope_theta;
  }
}

}  // namespace

HfConfig HfConfig::load(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  check<ConfigError>(fs::exists(path, ignored), path,
                     ": no such model; expected a directory with config.json or a .gguf file",
                     no_model_hint(path));
  const bool is_directory = fs::is_directory(path, ignored) || stands_for_directory(path);
  check<ConfigError>(is_directory || path.ends_with(".json"), path,
                     ": found a file, expected a model directory", no_model_hint(path));
  const std::string file = is_directory ? path + "/config.json" : path;
  check<ConfigError>(is_file(file) || fs::exists(file, ignored), path,
                     ": not a model directory: it has no config.json", no_model_hint(path));
  HfConfig config = parse(read_json_file(file, size_t{64} << 20), file);
  if (untied_head(config, config.directory()).empty()) return config;
  Json untied = config.json();
  for (const char* key : kTiedKeys)
    if (key == kTiedKeys[0] || untied.contains(key)) untied[key] = false;
  config.json_ = std::make_shared<const Json>(std::move(untied));
  return config;
}

std::string HfConfig::directory() const {
  return std::filesystem::path(where_).parent_path().string();
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
    use_alias(config.model_type_, inner);
    for (const char* key : {"eos_token_id", "bos_token_id", "pad_token_id", "image_token_id",
                            "tie_word_embeddings", "initializer_range", "quantization_config"})
      if (json.contains(key) && (!inner.contains(key) || std::string(key).starts_with("tie_")))
        inner[key] = json[key];  // the head is the outer model's
    config.json_ = std::make_shared<const Json>(std::move(inner));
  } else {
    // A hub's files of Qwen2.5-VL have the text's keys beside the vision_config.
    const bool flat = config.model_type_ == "qwen2_5_vl" && json.contains("vision_config");
    if (flat) {
      config.multimodal_ = true;
      config.model_type_ += "_text";
      use_alias(config.model_type_, json);
      json.erase("vision_config");
    }
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
  if (!value) return is_null(key) ? false : fallback;  // null is false, as in Python
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

// Phi 3's first files call longrope su or yarn.
std::string rope_type(const HfConfig& part) {
  const std::string type = part.text("rope_type", part.text("type", "default"));
  if (type == "mrope") return "default";  // Qwen2.5-VL's first files; mrope_section says more
  return part.has("short_factor") && (type == "su" || type == "yarn") ? "longrope" : type;
}

void read_longrope(const HfConfig& part, int64_t max_positions, nn::RotaryConfig& rotary) {
  const double original = rotary.original_max_position_embeddings;
  rotary.factor = number_above(part, "factor", 0, static_cast<double>(max_positions) / original);
  rotary.attention_factor = number_above(part, "attention_factor", 0,
                                         nn::longrope_attention_factor(rotary.factor, original));
  rotary.short_factor = part.numbers("short_factor");
  for (const double divisor : rotary.short_factor)
    if (!(divisor > 0)) part.fail("short_factor", "expected numbers above 0");
}

// The length that a model was trained for before it was stretched: that of the config wins, where
// all layers rotate alike.
double original_length(const HfConfig& config, const HfConfig& part, bool of_all_layers,
                       int64_t max_positions, double least) {
  const char* key = "original_max_position_embeddings";
  const HfConfig& holder = of_all_layers && config.has(key) ? config : part;
  return number_above(holder, key, least, static_cast<double>(max_positions));
}

// rope_type's own keys; `part` is the object of `config` that holds them.
void read_scaling(const HfConfig& config, const HfConfig& part, bool of_all_layers,
                  int64_t max_positions, nn::RotaryConfig& rotary) {
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
  rotary.max_positions = max_positions;
  if (rotary.kind == Kind::kLlama3 || rotary.kind == Kind::kYarn || rotary.kind == Kind::kLongRope)
    rotary.original_max_position_embeddings = original_length(
        config, part, of_all_layers, max_positions, rotary.kind == Kind::kLongRope ? 1 : 0);
  if (rotary.kind == Kind::kLongRope) return read_longrope(part, max_positions, rotary);
  const double stretched =
      static_cast<double>(max_positions) / rotary.original_max_position_embeddings;
  rotary.factor = number_above(part, "factor", 0, rotary.kind == Kind::kYarn ? stretched : 1);
  if (rotary.kind == Kind::kLlama3) {
    rotary.low_freq_factor = number_above(part, "low_freq_factor", 0, 1);
    rotary.high_freq_factor = number_above(part, "high_freq_factor", 0, 4);
  }
  if (rotary.kind != Kind::kYarn) return;
  if (rotary.theta <= 1) part.fail("rope_theta", "yarn expects a number above 1");
  rotary.beta_fast = number_above(part, "beta_fast", 0, 32);
  rotary.beta_slow = number_above(part, "beta_slow", 0, 1);
  rotary.truncate = part.boolean("truncate", true);
  const double mscale = part.number("mscale", 0), mscale_all = part.number("mscale_all_dim", 0);
  const double usual = mscale != 0 && mscale_all != 0
                           ? nn::yarn_attention_factor(rotary.factor, mscale) /
                                 nn::yarn_attention_factor(rotary.factor, mscale_all)
                           : nn::yarn_attention_factor(rotary.factor);
  rotary.attention_factor = number_above(part, "attention_factor", 0, usual);
}

bool has_kinds(const Json& rope) {
  return rope.contains("full_attention") || rope.contains("sliding_attention");
}

// rope_parameters of families whose kinds of layers rotate each in their own way, which read
// nothing beside the objects of these.
void check_nothing_beside(const HfConfig& config, const Json& rope) {
  for (const auto& [key, value] : rope.items())
    if (!(key == "rope_type" || key == "type") || value != "default")
      config.fail("rope_parameters", "found `" + key +
                                         "`, expected an object for each kind of layer, "
                                         "full_attention and sliding_attention");
}

}  // namespace

// As transformers: rope_scaling, where it says anything, wins over rope_parameters; of families
// whose kinds of layers rotate each in their own way it adds to that of full attention.
std::optional<HfConfig> HfConfig::rope_section(std::string_view layer_type) const {
  const auto object = [&](const char* name) {
    const Json* found = find(name);
    if (found && !found->is_object()) fail(name, "expected an object");
    return found;
  };
  const Json *parameters = object("rope_parameters"), *scaling = object("rope_scaling");
  if (scaling && scaling->empty()) scaling = nullptr;
  if (scaling && has_kinds(*scaling))
    fail("rope_scaling", "found an object for each kind of layer, expected one");
  if (layer_type.empty()) {
    if (!scaling && !parameters) return std::nullopt;
    if (!scaling && has_kinds(*parameters))
      fail("rope_parameters", "found an object for each kind of layer, expected one for all");
    return section(scaling ? *scaling : *parameters, scaling ? "rope_scaling" : "rope_parameters");
  }
  Json own;
  if (parameters && !has_kinds(*parameters)) check_nothing_beside(*this, *parameters);
  if (parameters && parameters->contains(std::string(layer_type)))
    own = parameters->at(std::string(layer_type));
  if (!own.is_null() && !own.is_object())
    fail("rope_parameters", "expected an object for each kind of layer");
  const bool adds = scaling && layer_type == "full_attention";
  if (adds && own.is_null()) own["rope_type"] = "default";
  if (own.is_null()) return std::nullopt;
  if (adds) own.update(*scaling);
  own.erase("truncate");  // which stands beside the kinds of layers
  if (parameters && parameters->contains("truncate")) own["truncate"] = parameters->at("truncate");
  return section(std::move(own), adds ? "rope_scaling" : "rope_parameters");
}

nn::RotaryConfig HfConfig::rotary(double default_theta, int64_t max_positions,
                                  std::string_view layer_type,
                                  std::optional<double> default_share) const {
  nn::RotaryConfig rotary;
  // Gemma 3's local layers have a base of their own; the config's rope_theta is the others'.
  rotary.theta = layer_type == "sliding_attention"
                     ? default_theta
                     : number_above(*this, "rope_theta", 0, default_theta);
  rotary.share = rotated_share(*this, default_share.value_or(1), default_share.has_value());
  const std::optional<HfConfig> part = rope_section(layer_type);
  if (!part) return rotary;
  rotary.share = rotated_share(*part, rotary.share, default_share.has_value());
  rotary.theta = number_above(*part, "rope_theta", 0, rotary.theta);
  read_scaling(*this, *part, layer_type.empty(), max_positions, rotary);
  return rotary;
}

void HfConfig::read_sections(nn::RotaryConfig& rotary, std::array<int64_t, 3> usual,
                             bool interleaved) const {
  const std::optional<HfConfig> part = rope_section();
  std::vector<double> found;
  if (part) found = part->numbers("mrope_section");
  if (found.empty() && !multimodal_) return;
  if (found.empty()) found.assign(usual.begin(), usual.end());
  const auto whole = [](double n) { return n >= 0 && n <= INT32_MAX && n == std::floor(n); };
  if (found.size() != 3 || !std::ranges::all_of(found, whole))
    part->fail("mrope_section", "expected three numbers of frequencies");
  for (size_t i = 0; i < 3; ++i) rotary.sections[i] = static_cast<int64_t>(found[i]);
  rotary.sections_interleaved = interleaved;
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
