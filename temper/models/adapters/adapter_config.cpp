#include "temper/models/adapters/adapter_config.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/json.h"
#include "temper/models/files/directory.h"

namespace temper::models {
namespace {

constexpr const char* kFile = "/adapter_config.json";
constexpr size_t kMostBytes = size_t{16} << 20;
constexpr size_t kMostPatterns = 65536;  // of a config
constexpr const char* kMergeHint = "merge the adapter with PEFT's merge_and_unload";

// Kinds that change the base's weights or the forward pass: these files alone do not say what the
// adapter computes.
constexpr const char* kOtherKinds[] = {"alora_invocation_tokens",
                                       "use_qalora",
                                       "layer_replication",
                                       "lora_bias",
                                       "arrow_config",
                                       "loftq_config",
                                       "corda_config",
                                       "lora_ga_config",
                                       "kasa_config",
                                       "monteclora_config",
                                       "velora_config",
                                       "use_bdlora",
                                       "megatron_config"};

// Says that a value is wrong, in the reader's terms.
class ConfigReader {
 public:
  ConfigReader(const Json& json, std::string path) : json_(json), path_(std::move(path)) {}

  // Null: the file does not say.
  const Json* find(const char* key) const {
    const auto found = json_.find(key);
    return found == json_.end() ? nullptr : &*found;
  }
  [[noreturn]] void fail(const std::string& key, const std::string& problem) const {
    throw ConfigError(temper::str(path_, ": `", key, "`: ", problem));
  }
  [[noreturn]] void refuse(const std::string& key) const {
    throw ConfigError(temper::str(path_, ": `", key, "` is not supported; ", kMergeHint));
  }

  bool flag(const char* key) const {
    const Json* value = find(key);
    if (!value || value->is_null()) return false;
    if (!value->is_boolean()) fail(key, found(*value) + ", expected true or false");
    return value->get<bool>();
  }
  double number(const char* key, double fallback) const {
    const Json* value = find(key);
    return value ? finite(key, *value) : fallback;
  }
  int64_t positive(const char* key, int64_t fallback) const {
    const Json* value = find(key);
    return value ? static_cast<int64_t>(rank(key, *value)) : fallback;
  }
  // A list of names, or one.
  std::vector<std::string> names(const char* key) const {
    std::vector<std::string> out;
    const Json* value = find(key);
    if (!value || value->is_null()) return out;
    const Json list = value->is_array() ? *value : Json::array({*value});
    for (const Json& name : list) {
      if (!name.is_string()) fail(key, found(*value) + ", expected a list of names");
      out.push_back(name.get<std::string>());
    }
    return out;
  }
  std::vector<LayerPattern> patterns(const char* key, bool ranks) const {
    std::vector<LayerPattern> out;
    const Json* value = find(key);
    if (!value || value->is_null()) return out;
    if (!value->is_object() || value->size() > kMostPatterns)
      fail(key, str("expected an object of at most ", kMostPatterns, " patterns and numbers"));
    for (const auto& [pattern, of] : value->items()) {
      const std::string where = str(key, "`, `", pattern);
      out.push_back({pattern, ranks ? rank(where, of) : finite(where, of)});
    }
    return out;
  }

  // Token ids by module; a list is of the embeddings.
  std::vector<TrainedTokens> tokens(const char* key) const {
    std::vector<TrainedTokens> out;
    const Json* value = find(key);
    if (!value || value->is_null() || value->empty()) return out;
    if (value->is_array()) return {{.ids = ids(key, *value)}};
    if (!value->is_object() || value->size() > kMostPatterns)
      fail(key, found(*value) + ", expected a list of token ids, or an object of such lists");
    for (const auto& [module, of] : value->items())
      out.push_back({module, ids(str(key, "`, `", module), of)});
    return out;
  }

 private:
  std::vector<int64_t> ids(const std::string& key, const Json& value) const {
    if (!value.is_array() || value.empty()) fail(key, found(value) + ", expected token ids");
    std::vector<int64_t> out;
    for (const Json& id : value) {
      if (!id.is_number_integer() || id.get<double>() < 0 || id.get<double>() > INT32_MAX)
        fail(key, found(id) + ", expected a token id");
      out.push_back(id.get<int64_t>());
    }
    return out;
  }
  static std::string found(const Json& value) { return "found " + dump_json(value).substr(0, 100); }
  double finite(const std::string& key, const Json& value) const {
    if (!value.is_number() || !std::isfinite(value.get<double>()))
      fail(key, found(value) + ", expected a number");
    return value.get<double>();
  }
  double rank(const std::string& key, const Json& value) const {
    if (!value.is_number_integer() || value.get<double>() < 1 || value.get<double>() > INT32_MAX)
      fail(key, found(value) + ", expected a positive integer");
    return value.get<double>();
  }

  const Json& json_;
  std::string path_;
};

// What a config asks for and nobody here computes.
void check_kind(const ConfigReader& reader, const Json& json) {
  const Json* type = reader.find("peft_type");
  if (type && *type != "LORA")
    reader.fail("peft_type", "found " + dump_json(*type) + ", expected LORA");
  if (reader.flag("fan_in_fan_out")) reader.refuse("fan_in_fan_out");
  const Json* bias = reader.find("bias");
  if (bias && *bias != "none")
    reader.fail("bias", "found " + dump_json(*bias) + ", expected none; " + kMergeHint);
  const Json* init = reader.find("init_lora_weights");
  constexpr const char* kPlain[] = {"gaussian", "orthogonal", "eva", "mica"};
  if (init && init->is_string() && std::ranges::count(kPlain, init->get<std::string>()) == 0)
    reader.fail("init_lora_weights",
                "found " + dump_json(*init) +
                    ", which changes the base model's weights; convert the adapter with PEFT's "
                    "path_initial_model_for_weight_conversion");
  const auto asks = [](const Json& value) {
    return !value.is_null() && value != false && !value.empty();
  };
  for (const char* key : kOtherKinds)
    if (const Json* value = reader.find(key); value && asks(*value)) reader.refuse(key);
  // Of versions to come: a kind is chosen by use_KIND or has a section KIND_config.
  constexpr const char* kKnown[] = {"use_rslora", "use_dora", "eva_config", "runtime_config"};
  for (const auto& [key, value] : json.items()) {
    if (std::ranges::count(kKnown, key) > 0) continue;
    const bool chosen = key.starts_with("use_") && (value == true || value.is_object());
    const bool section = key.ends_with("_config") && value.is_object();
    if ((chosen || section) && asks(value)) reader.refuse(key);
  }
}

}  // namespace

AdapterConfig read_adapter_config(const std::string& directory) {
  const std::string path = directory + kFile;
  std::error_code none;
  const bool there = std::filesystem::exists(directory, none);
  check<ConfigError>(std::filesystem::exists(path, none), directory,
                     there ? ": not an adapter directory: it has no adapter_config.json"
                           : ": no such adapter; expected a directory with adapter_config.json",
                     no_adapter_hint(directory));
  const Json json = read_json_file(path, kMostBytes);
  check<ConfigError>(json.is_object(), path, ": expected a JSON object");
  const ConfigReader reader(json, path);
  check_kind(reader, json);
  AdapterConfig read;
  LoraConfig& config = read.lora;
  config.rank = reader.positive("r", 8);  // what PEFT takes where it is not written
  config.alpha = reader.number("lora_alpha", 8);
  config.dropout = reader.number("lora_dropout", 0);
  check<ConfigError>(config.dropout >= 0 && config.dropout < 1, path, ": `lora_dropout`: found ",
                     config.dropout, ", expected at least 0 and below 1");
  config.rank_pattern = reader.patterns("rank_pattern", true);
  config.alpha_pattern = reader.patterns("alpha_pattern", false);
  config.rank_stabilized = reader.flag("use_rslora");
  config.dora = reader.flag("use_dora");
  config.tied = reader.flag("ensure_weight_tying");
  read.target_parameters = reader.names("target_parameters");
  read.modules_to_save = reader.names("modules_to_save");
  read.token_rows = reader.tokens("trainable_token_indices");
  const Json* task = reader.find("task_type");
  if (task && (*task == "SEQ_CLS" || *task == "TOKEN_CLS")) {
    // PEFT adds both names of classifiers' heads; a model has one of them.
    std::erase(read.modules_to_save, "classifier");
    std::erase(read.modules_to_save, "score");
  }
  return read;
}

void check_saved_modules(const AdapterConfig& config, const std::vector<std::string>& names,
                         const std::string& directory) {
  const auto has = [&](const std::string& module) {
    return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      const bool of_it =
          name.starts_with(module + ".") || name.find("." + module + ".") != name.npos;
      return of_it && name.find(".lora_") == name.npos;
    });
  };
  for (const std::string& module : config.modules_to_save) {
    const bool by_embedding = config.lora.tied && module == "lm_head" && has("embed_tokens");
    check<ConfigError>(has(module) || by_embedding, directory, kFile, ": `modules_to_save` names ",
                       module,
                       ", but the adapter's weights have no tensor for it; the directory is "
                       "incomplete");
  }
}

}  // namespace temper::models
