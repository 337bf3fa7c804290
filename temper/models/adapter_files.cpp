#include <ATen/ATen.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/io/pickle.h"
#include "temper/models/adapter_parts.h"
#include "temper/models/directory.h"
#include "temper/models/expert_adapters.h"
#include "temper/models/load.h"

namespace temper::models {
namespace {

const std::string kPrefix = "base_model.model.";
const std::string kScoreTensor = kPrefix + "score.weight";
const std::string kHeadTensor = kPrefix + "lm_head.weight";
constexpr const char* kGateUpPattern = R"(.*\.gate_up_proj)";  // as PEFT writes it

std::string matrix_name(const Target& t, const char* matrix) {
  return kPrefix + t.path + "." + matrix + ".weight";
}
// PEFT leaves the parameter's own name out of the file.
std::string magnitude_name(const Target& t) { return kPrefix + t.path + ".lora_magnitude_vector"; }
std::string whole_name(const WholeModule& m) { return kPrefix + m.path + ".weight"; }

// "mlp.gate" of "model.layers.0.mlp.gate".
std::string parent_and_name(const std::string& path) {
  return path.substr(path.rfind('.', path.rfind('.') - 1) + 1);
}

void take(TensorMap& tensors, const std::string& name, nn::Parameter& parameter,
          const std::string& directory) {
  const auto it = tensors.find(name);
  check<ConfigError>(it != tensors.end(), directory, ": ", name, " is missing");
  check<ConfigError>(it->second.shape == parameter.whole_shape(), directory, ": ", it->first,
                     " is ", at::IntArrayRef(it->second.shape), ", expected ",
                     at::IntArrayRef(parameter.whole_shape()),
                     "; the adapter is for another model");
  parameter.set_whole_value(to_tensor(it->second, at::kFloat));
  parameter.set_trainable(true);
  tensors.erase(it);
}

struct AdapterConfig {
  LoraConfig lora;
  std::vector<std::string> target_parameters;
};

// The value of a pattern of ranks or alphas, whose only key may mean the experts' gate_up_proj;
// null without one.
Json gate_up_pattern(const Json& json, const char* key, const std::string& path) {
  if (!json.contains(key) || json[key].empty()) return nullptr;
  const Json& pattern = json[key];
  const bool fits = pattern.is_object() && pattern.size() == 1 &&
                    pattern.begin().key().ends_with("gate_up_proj") &&
                    pattern.begin().value().is_number() && pattern.begin().value() > 0;
  check<ConfigError>(fits, path, ": `", key,
                     "` is supported for the experts' gate_up_proj alone; expected one `r` and "
                     "`lora_alpha` for all others");
  return pattern.begin().value();
}

AdapterConfig read_config(const std::string& directory) {
  const std::string path = directory + "/adapter_config.json";
  std::error_code none;
  const bool there = std::filesystem::exists(directory, none);
  check<ConfigError>(std::filesystem::exists(path, none), directory,
                     there ? ": not an adapter directory: it has no adapter_config.json"
                           : ": no such adapter; expected a directory with adapter_config.json",
                     no_adapter_hint(directory));
  const Json json = read_json_file(path, size_t{16} << 20);
  check<ConfigError>(json.is_object(), path, ": expected a JSON object");
  const auto type = json.find("peft_type");
  check<ConfigError>(type == json.end() || *type == "LORA", path, ": `peft_type`: found ",
                     type == json.end() ? "" : dump_json(*type), ", expected LORA");
  const auto is_true = [&json](const char* key) {
    return json.contains(key) && json[key] != false && !json[key].is_null();
  };
  check<ConfigError>(!is_true("fan_in_fan_out"), path, ": `fan_in_fan_out` is not supported");
  check<ConfigError>(!json.contains("bias") || json["bias"] == "none", path,
                     ": `bias`: expected none");
  // Kinds that change the base's weights or the forward pass: these files alone do not say what the
  // adapter computes.
  const Json init = json.value("init_lora_weights", Json(true));
  check<ConfigError>(!init.is_string() || init == "gaussian" || init == "orthogonal", path,
                     ": `init_lora_weights`: found ", dump_json(init),
                     ", which changes the base model's weights; convert the adapter with PEFT's "
                     "path_initial_model_for_weight_conversion");
  for (const char* key :
       {"alora_invocation_tokens", "use_qalora", "layer_replication", "trainable_token_indices",
        "lora_bias", "arrow_config", "loftq_config", "eva_config", "corda_config"})
    check<ConfigError>(!is_true(key) || json[key].empty(), path, ": `", key,
                       "` is not supported; merge the adapter with PEFT's merge_and_unload");
  AdapterConfig read;
  LoraConfig& config = read.lora;
  config.rank = config.alpha = 8;  // what PEFT takes where they are not written
  if (json.contains("r")) {
    check<ConfigError>(json["r"].is_number_integer() && json["r"].get<int64_t>() > 0, path,
                       ": `r` must be a positive integer");
    config.rank = json["r"].get<int64_t>();
  }
  if (json.contains("lora_alpha") && json["lora_alpha"].is_number())
    config.alpha = json["lora_alpha"].get<double>();
  if (json.contains("lora_dropout") && json["lora_dropout"].is_number())
    config.dropout = json["lora_dropout"].get<double>();
  check<ConfigError>(config.dropout >= 0 && config.dropout < 1, path, ": `lora_dropout`: found ",
                     config.dropout, ", expected at least 0 and below 1");
  const Json gate_up_rank = gate_up_pattern(json, "rank_pattern", path),
             gate_up_alpha = gate_up_pattern(json, "alpha_pattern", path);
  check<ConfigError>(gate_up_rank.is_null() || gate_up_rank.is_number_integer(), path,
                     ": `rank_pattern`: expected an integer");
  if (!gate_up_rank.is_null() || !gate_up_alpha.is_null())
    config.gate_up = {gate_up_rank.is_null() ? config.rank : gate_up_rank.get<int64_t>(),
                      gate_up_alpha.is_null() ? config.alpha : gate_up_alpha.get<double>()};
  config.rank_stabilized = is_true("use_rslora");
  config.dora = is_true("use_dora");
  config.tied = is_true("ensure_weight_tying");
  if (is_true("target_parameters"))
    for (const Json& name : json["target_parameters"])
      if (name.is_string()) read.target_parameters.push_back(name.get<std::string>());
  return read;
}

// PEFT writes the base's own weight beside an adapter of the head. Another one would be another
// base model.
void take_head_base(TensorMap& tensors, const Target& head, const std::string& directory) {
  const std::string name = kPrefix + head.path + ".base_layer.weight";
  const auto found = tensors.find(name);
  if (found == tensors.end()) return;
  const nn::Parameter& own = head.layer->weight;
  check<ConfigError>(found->second.shape == own.whole_shape(), directory, ": ", name, " is ",
                     at::IntArrayRef(found->second.shape), ", expected ",
                     at::IntArrayRef(own.whole_shape()), "; the adapter is for another model");
  // Either may be kept rounded.
  const bool same =
      !own.has_value() || at::equal(to_tensor(found->second, at::kFloat).to(at::kBFloat16),
                                    own.float_value().detach().to(at::kCPU).to(at::kBFloat16));
  check<ConfigError>(same, directory, ": ", name,
                     " is not the model's; the adapter is for another model");
  tensors.erase(found);
}

// What an adapter of a language model's head left in the file for a model without that head.
void drop_head(TensorMap& tensors) {
  tensors.erase(kHeadTensor);
  for (const char* part : {"lora_A.weight", "lora_B.weight", "base_layer.weight"})
    tensors.erase(kPrefix + "lm_head." + part);
}

// Values of whole modules, where the file has some; their names. A tied model's embeddings are its
// head, so that both or none must come.
std::vector<std::string> take_whole(TensorMap& tensors, nn::Module& model, bool tied_file,
                                    const std::string& directory) {
  std::vector<std::string> names;
  const bool tied = is_tied(model);
  const auto head = tensors.find(kHeadTensor);
  for (const WholeModule& m : whole_modules(model)) {
    const auto own = tensors.find(whole_name(m));
    if (own == tensors.end() && !(tied && head != tensors.end())) continue;
    const bool same =
        own != tensors.end() && head != tensors.end() &&
        at::equal(to_tensor(own->second, at::kFloat), to_tensor(head->second, at::kFloat));
    check<ConfigError>(!tied || same || (tied_file && own != tensors.end()), directory, ": holds ",
                       own == tensors.end() ? "lm_head" : "embed_tokens",
                       " as a weight of its own (modules_to_save), but the model's head is tied to "
                       "its embeddings (tie_word_embeddings); expected an adapter made with "
                       "ensure_weight_tying: true");
    m.versions->replace(*m.weight);
    take(tensors, whole_name(m), *m.weight, directory);
    names.push_back(last_part(m.path));
  }
  if (tied) tensors.erase(kHeadTensor);
  return names;
}

}  // namespace

LoraConfig load_adapter(nn::Module& model, const std::string& directory) {
  auto [config, target_parameters] = read_config(directory);
  const std::string weights = directory + "/adapter_model.safetensors";
  TensorMap tensors = std::filesystem::exists(weights)
                          ? read_safetensors(weights)
                          : read_torch_file(directory + "/adapter_model.bin");
  const std::vector<Target> layers = linear_layers(model);
  if (join_single_adapters(tensors, layers, kPrefix, directory)) config.join_gate_and_up();
  divide_expert_adapters(tensors, layers, target_parameters, kPrefix, directory);
  std::vector<Target> targets;
  config.target_modules.clear();
  for (const Target& t : layers)
    if (tensors.contains(matrix_name(t, "lora_A"))) targets.push_back(t);
  std::set<std::string> names;
  for (const Target& t : targets) names.insert(last_part(t.path));
  config.target_modules.assign(names.begin(), names.end());
  check<ConfigError>(!targets.empty(), directory,
                     ": holds no adapter for this model's linear layers");
  attach(targets, model, config);
  for (const Target& t : targets) {
    take(tensors, matrix_name(t, "lora_A"), t.layer->lora()->lora_A.weight, directory);
    take(tensors, matrix_name(t, "lora_B"), t.layer->lora()->lora_B.weight, directory);
    if (config.dora)
      take(tensors, magnitude_name(t), t.layer->lora()->lora_magnitude_vector->weight, directory);
    if (is_head(t)) take_head_base(tensors, t, directory);
  }
  config.modules_to_save = take_whole(tensors, model, config.tied, directory);
  for (const Target& t : targets)
    for (const WholeModule& m : whole_modules(model))
      check<ConfigError>(!is_head(t) || m.weight != &t.layer->weight || !m.versions->replaced(),
                         directory,
                         ": adapts lm_head and brings its weight whole as well; "
                         "expected one of target_modules and modules_to_save to name it");
  train_score(model);
  if (nn::Parameter* score = score_weight(model)) {
    if (tensors.contains(kScoreTensor)) take(tensors, kScoreTensor, *score, directory);
    drop_head(tensors);
  }
  check<ConfigError>(tensors.empty(), directory, ": the model has no place for ",
                     tensors.empty() ? "" : tensors.begin()->first);
  return config;
}

namespace {

SafetensorsMetadata base_format(nn::Module& model) {
  SafetensorsMetadata found;
  model.visit({.embedding = [&](const std::string&, nn::Embedding& embedding) {
    found[kBaseDtype] = ops::name_of(embedding.weight.format());
  }});
  for (const Target& t : linear_layers(model)) {  // mxfp4 is of experts alone
    const ops::WeightFormat format = t.layer->weight.format();
    if (!found.contains(kBaseStorage) || format == ops::WeightFormat::kMxFp4)
      found[kBaseStorage] = ops::name_of(format);
  }
  return found;
}

}  // namespace

// A directory's path as it is found from elsewhere, too; a hub's id as it is.
static std::string findable(const std::string& base) {
  std::error_code none;
  if (base.empty() || !std::filesystem::is_directory(base, none)) return base;
  const std::filesystem::path whole = std::filesystem::absolute(base, none);
  return none ? base : whole.lexically_normal().string();
}

void save_adapter(nn::Module& model, const LoraConfig& config, const std::string& base,
                  const std::string& directory, int adapter) {
  TensorMap tensors;
  std::set<std::string> names, parameters;
  for (const Target& t : linear_layers(model)) {
    nn::Lora* lora = t.layer->adapter(adapter);
    if (!lora) continue;
    if (t.is_router) parameters.insert(parent_and_name(t.path) + ".weight");
    if (!t.is_router && !is_expert_layer(t.path)) names.insert(last_part(t.path));
    tensors[matrix_name(t, "lora_A")] = whole_view(lora->lora_A.weight);
    tensors[matrix_name(t, "lora_B")] = whole_view(lora->lora_B.weight);
    if (lora->lora_magnitude_vector)
      tensors[magnitude_name(t)] = whole_view(lora->lora_magnitude_vector->weight);
  }
  for (std::string& name : join_expert_adapters(tensors, kPrefix))
    parameters.insert(std::move(name));
  Json whole = Json::array();
  for (const WholeModule& m : whole_modules(model)) {
    if (adapter != 0 || !m.versions->replaced()) continue;
    tensors[whole_name(m)] = whole_view(*m.weight);
    if (is_tied(model)) tensors[kHeadTensor] = whole_view(*m.weight);
    whole.push_back(last_part(m.path));
  }
  const bool tied = !whole.empty() && is_tied(model);
  nn::Parameter* score = score_weight(model);
  if (score) whole.push_back(kScorePath);
  if (score) tensors[kScoreTensor] = whole_view(*score);
  if (directory.empty()) return write_safetensors("", tensors);
  std::filesystem::create_directories(directory);
  write_safetensors(directory + "/adapter_model.safetensors", tensors, base_format(model));
  const PublicName name = public_name(base);
  Json json = {{"peft_type", "LORA"},
               {"task_type", score ? "SEQ_CLS" : "CAUSAL_LM"},
               {"base_model_name_or_path", findable(name.name)},
               {"revision", name.revision.empty() ? Json() : Json(name.revision)},
               {"r", config.rank},
               {"lora_alpha", config.alpha},
               {"lora_dropout", config.dropout},
               {"use_rslora", config.rank_stabilized},
               {"use_dora", config.dora},
               {"target_modules", std::vector<std::string>(names.begin(), names.end())},
               {"bias", "none"},
               {"fan_in_fan_out", false},
               {"inference_mode", true},
               {"init_lora_weights", true},
               {"modules_to_save", whole.empty() ? Json() : whole}};
  if (!parameters.empty()) json["target_parameters"] = parameters;
  if (config.gate_up) {
    json["rank_pattern"] = {{kGateUpPattern, config.gate_up->rank}};
    json["alpha_pattern"] = {{kGateUpPattern, config.gate_up->alpha}};
  }
  if (names.empty()) json["target_modules"] = nullptr;
  if (tied) json["ensure_weight_tying"] = true;  // older versions of PEFT do not know the key
  write_file_atomic(directory + "/adapter_config.json", json.dump(2) + "\n");
}

}  // namespace temper::models
