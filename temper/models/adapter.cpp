#include "temper/models/adapter.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/base/random.h"
#include "temper/io/pickle.h"
#include "temper/models/load.h"

namespace temper::models {
namespace {

struct Target {
  std::string path;  // "model.layers.0.self_attn.q_proj"
  nn::Linear* layer;
};

// Heads are no targets of adapters. One of a sequence classifier trains beside an adapter: PEFT's
// modules_to_save, which its files hold whole.
constexpr const char* kScore = "score";

// Every linear layer but the heads, as PEFT's all-linear.
std::vector<Target> linear_layers(nn::Module& model) {
  std::vector<Target> layers;
  model.each_module([&](const std::string& path, nn::Module& module) {
    if (auto* layer = dynamic_cast<nn::Linear*>(&module);
        layer && path != "lm_head" && path != kScore)
      layers.push_back({path, layer});
  });
  return layers;
}

std::string last_part(const std::string& path) { return path.substr(path.rfind('.') + 1); }

std::vector<Target> choose_targets(nn::Module& model, const std::vector<std::string>& names) {
  const std::vector<Target> layers = linear_layers(model);
  if (names.size() == 1 && names[0] == "all-linear") return layers;
  std::set<std::string> known;
  for (const Target& t : layers) known.insert(last_part(t.path));
  std::vector<Target> chosen;
  std::set<std::string> used;
  for (const Target& t : layers)
    for (const std::string& name : names)
      if (name == last_part(t.path) || name == t.path || t.path.ends_with("." + name)) {
        used.insert(name);
        chosen.push_back(t);
        break;
      }
  for (const std::string& name : names) {
    std::string list;
    for (const std::string& k : known) list += (list.empty() ? "" : ", ") + k;
    check<ConfigError>(used.contains(name), "adapter.target_modules: `", name,
                       "` names no linear layer; there are ", list, ", or all-linear");
  }
  return chosen;
}

void attach(const std::vector<Target>& targets, nn::Module& model, const LoraConfig& config) {
  model.each_parameter([](const std::string&, nn::Parameter& p) { p.set_trainable(false); });
  uint64_t key = 0;
  for (const Target& t : targets)
    t.layer->add_lora(config.rank, config.scale(), config.dropout, ++key);
}

std::string name_of(const Target& t, const char* matrix) {
  return "base_model.model." + t.path + "." + matrix + ".weight";
}

const std::string kScoreTensor = "base_model.model.score.weight";

// The weight of a sequence classifier's head; null in a language model.
nn::Parameter* score_weight(nn::Module& model) {
  nn::Parameter* found = nullptr;
  model.each_module([&](const std::string& path, nn::Module& module) {
    if (path == kScore) found = &dynamic_cast<nn::Linear&>(module).weight;
  });
  return found;
}

void train_score(nn::Module& model) {
  nn::Parameter* score = score_weight(model);
  if (!score) return;
  if (score->format() == ops::WeightFormat::kBFloat16)
    score->set_format(ops::WeightFormat::kRoundedBFloat16);
  score->own();
  score->set_trainable(true);
}

void take(TensorMap& tensors, const std::string& name, nn::Parameter& parameter,
          const std::string& directory) {
  const auto it = tensors.find(name);
  check<ConfigError>(it != tensors.end(), directory, ": ", name, " is missing");
  check<ConfigError>(it->second.shape == parameter.shape(), directory, ": ", it->first, " is ",
                     at::IntArrayRef(it->second.shape), ", expected ",
                     at::IntArrayRef(parameter.shape()), "; the adapter is for another model");
  parameter.set_value(to_tensor(it->second, at::kFloat));
  parameter.own();  // not the file's mapping: it trains
  parameter.set_trainable(true);
  tensors.erase(it);
}

}  // namespace

double LoraConfig::scale() const {
  return alpha /
         (rank_stabilized ? std::sqrt(static_cast<double>(rank)) : static_cast<double>(rank));
}

void add_lora(nn::Module& model, const LoraConfig& config, uint64_t seed) {
  const std::vector<Target> targets = choose_targets(model, config.target_modules);
  attach(targets, model, config);
  for (const Target& t : targets) {
    nn::Lora& lora = *t.layer->lora();
    // PEFT: kaiming_uniform(a = sqrt 5), that is uniform in +-1 / sqrt(in).
    at::Tensor a = at::empty(lora.lora_A.weight.shape(), at::kFloat);
    const RandomStream stream(seed, RandomPurpose::kInit, lora.key, 1);
    const float bound = 1.0f / std::sqrt(static_cast<float>(t.layer->in()));
    for (int64_t i = 0; i < a.numel(); ++i)
      a.mutable_data_ptr<float>()[i] = bound * (2 * stream.uniform(static_cast<uint64_t>(i)) - 1);
    lora.lora_A.weight.set_value(a);
    lora.lora_B.weight.set_value(at::zeros(lora.lora_B.weight.shape(), at::kFloat));
    lora.lora_A.weight.set_trainable(true);
    lora.lora_B.weight.set_trainable(true);
  }
  train_score(model);
}

bool targets_are(nn::Module& model, const std::vector<std::string>& names) {
  std::set<const nn::Linear*> named, adapted;
  for (const Target& t : choose_targets(model, names)) named.insert(t.layer);
  for (const Target& t : linear_layers(model))
    if (t.layer->lora()) adapted.insert(t.layer);
  return named == adapted;
}

LoraConfig load_adapter(nn::Module& model, const std::string& directory) {
  namespace fs = std::filesystem;
  const std::string path = directory + "/adapter_config.json";
  check<ConfigError>(fs::exists(path), directory,
                     ": not an adapter directory: it has no adapter_config.json");
  const Json json = read_json_file(path, size_t{16} << 20);
  check<ConfigError>(json.is_object(), path, ": expected a JSON object");
  const auto type = json.find("peft_type");
  check<ConfigError>(type == json.end() || *type == "LORA", path, ": `peft_type`: found ",
                     type == json.end() ? "" : dump_json(*type), ", expected LORA");
  for (const char* key : {"use_dora", "fan_in_fan_out"})
    check<ConfigError>(!json.contains(key) || json[key] == false || json[key].is_null(), path,
                       ": `", key, "` is not supported");
  // One rank and one alpha for all: a pattern that were passed over would scale some layers
  // wrongly.
  for (const char* key : {"rank_pattern", "alpha_pattern"})
    check<ConfigError>(!json.contains(key) || json[key].empty(), path, ": `", key,
                       "` is not supported; expected one `r` and `lora_alpha` for all");
  check<ConfigError>(!json.contains("bias") || json["bias"] == "none", path,
                     ": `bias`: expected none");
  LoraConfig config;
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
  config.rank_stabilized = json.contains("use_rslora") && json["use_rslora"] == true;

  const std::string weights = directory + "/adapter_model.safetensors";
  TensorMap tensors = fs::exists(weights) ? read_safetensors(weights)
                                          : read_torch_file(directory + "/adapter_model.bin");
  std::vector<Target> targets;
  config.target_modules.clear();
  for (const Target& t : linear_layers(model))
    if (tensors.contains(name_of(t, "lora_A"))) targets.push_back(t);
  std::set<std::string> names;
  for (const Target& t : targets) names.insert(last_part(t.path));
  config.target_modules.assign(names.begin(), names.end());
  check<ConfigError>(!targets.empty(), directory,
                     ": holds no adapter for this model's linear layers");
  attach(targets, model, config);
  for (const Target& t : targets) {
    take(tensors, name_of(t, "lora_A"), t.layer->lora()->lora_A.weight, directory);
    take(tensors, name_of(t, "lora_B"), t.layer->lora()->lora_B.weight, directory);
  }
  train_score(model);
  if (tensors.contains(kScoreTensor) && score_weight(model))
    take(tensors, kScoreTensor, *score_weight(model), directory);
  check<ConfigError>(tensors.empty(), directory, ": the model has no place for ",
                     tensors.empty() ? "" : tensors.begin()->first);
  return config;
}

void save_adapter(nn::Module& model, const LoraConfig& config, const std::string& base,
                  const std::string& directory) {
  std::filesystem::create_directories(directory);
  TensorMap tensors;
  std::set<std::string> names;
  for (const Target& t : linear_layers(model)) {
    if (!t.layer->lora()) continue;
    names.insert(last_part(t.path));
    tensors[name_of(t, "lora_A")] = to_view(t.layer->lora()->lora_A.weight.value());
    tensors[name_of(t, "lora_B")] = to_view(t.layer->lora()->lora_B.weight.value());
  }
  nn::Parameter* score = score_weight(model);
  if (score) tensors[kScoreTensor] = to_view(score->value());
  write_safetensors(directory + "/adapter_model.safetensors", tensors);
  const Json json = {{"peft_type", "LORA"},
                     {"task_type", score ? "SEQ_CLS" : "CAUSAL_LM"},
                     {"base_model_name_or_path", base},
                     {"r", config.rank},
                     {"lora_alpha", config.alpha},
                     {"lora_dropout", config.dropout},
                     {"use_rslora", config.rank_stabilized},
                     {"target_modules", std::vector<std::string>(names.begin(), names.end())},
                     {"bias", "none"},
                     {"fan_in_fan_out", false},
                     {"inference_mode", true},
                     {"init_lora_weights", true},
                     {"modules_to_save", score ? Json({kScore}) : Json()}};
  write_file_atomic(directory + "/adapter_config.json", json.dump(2) + "\n");
}

int freeze_adapter_copy(nn::Module& model) {
  const std::vector<Target> layers = linear_layers(model);
  check(std::any_of(layers.begin(), layers.end(), [](const Target& t) { return t.layer->lora(); }),
        "a model without an adapter has none to copy");
  int index = 0;
  model.each_module([&](const std::string&, nn::Module& module) {  // heads count along
    if (auto* layer = dynamic_cast<nn::Linear*>(&module)) index = layer->add_frozen_copy();
  });
  return index;
}

TrainedCopy train_adapter_copy(nn::Module& model) {
  TrainedCopy copy{freeze_adapter_copy(model), {}};
  for (const Target& t : linear_layers(model)) {
    nn::Lora* lora = t.layer->adapter(copy.index);
    if (!lora) continue;
    for (auto& [name, matrix] : {std::pair{"lora_A", &lora->lora_A}, {"lora_B", &lora->lora_B}}) {
      matrix->weight.set_trainable(true);
      copy.parameters.emplace_back(t.path + "." + name + ".weight", &matrix->weight);
    }
  }
  return copy;
}

std::unique_ptr<ScalarModel> merged_scalar_model(CausalLM& model, const HfConfig& config,
                                                 int index) {
  auto merged = std::make_unique<ScalarModel>(family_of(config).make(config));
  std::map<std::string, nn::Parameter*> from;
  model.each_parameter([&](const std::string& name, nn::Parameter& p) { from[name] = &p; });
  merged->each_parameter([&](const std::string& name, nn::Parameter& p) {
    if (name == kScore + std::string(".weight")) return;
    p.set_bfloat16(from.at(name)->bfloat16());
    p.set_value(from.at(name)->value().detach());
  });
  std::map<std::string, nn::Linear*> layers;
  for (const Target& t : linear_layers(*merged)) layers[t.path] = t.layer;
  for (const Target& t : linear_layers(model)) {
    const nn::Lora* lora = t.layer->adapter(index);
    if (!lora) continue;
    nn::Linear& layer = *layers.at(t.path);
    layer.add_lora(lora->lora_A.weight.shape()[0], lora->scale, 0, 1);
    layer.lora()->lora_A.weight.set_value(lora->lora_A.weight.value().detach());
    layer.lora()->lora_B.weight.set_value(lora->lora_B.weight.value().detach());
    layer.merge_lora();
  }
  return merged;
}

void merge_adapters(nn::Module& model) {
  for (const Target& t : linear_layers(model)) t.layer->merge_lora();
}

}  // namespace temper::models
