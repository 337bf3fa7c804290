#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "temper/base/file.h"
#include "temper/models/adapters/adapter_config.h"
#include "temper/models/adapters/adapter_files.h"
#include "temper/models/adapters/expert_adapters.h"
#include "temper/models/files/directory.h"
#include "temper/models/files/expert_tensors.h"
#include "temper/models/files/load.h"
#include "temper/models/files/new_tokens.h"
#include "temper/models/files/tensors.h"
#include "temper/models/model.h"
#include "temper/models/vision/encoder.h"
#include "temper/models/vision/load.h"
#include "temper/models/vision/save.h"

namespace temper::models {
namespace {

SafetensorsMetadata base_format(nn::Module& model) {
  SafetensorsMetadata found{{kBaseDtype, ops::row_of(ops::WeightFormat::kFloat32).name}};
  const auto dtype = [&](const nn::Parameter& weight) {
    if (!ops::is_quantized(weight.format())) found[kBaseDtype] = ops::row_of(weight.format()).name;
  };
  for (const Target& t : linear_layers(model)) {  // one of files may be of some layers alone
    const ops::FormatRow& format = ops::row_of(t.layer->weight.format());
    if (!found.contains(kBaseStorage) || format.of_files)
      found[kBaseStorage] = storage_named(format.name) ? format.name : kFileStorage;
    dtype(t.layer->weight);
  }
  model.visit({.embedding = [&](const std::string&, nn::Embedding& embedding) {
    dtype(embedding.weight);
  }});
  return found;
}

// "mlp.gate" of "model.layers.0.mlp.gate".
std::string last_two_parts(const std::string& path) {
  return path.substr(path.rfind('.', path.rfind('.') - 1) + 1);
}

// What PEFT's names call the body of the model at the directory. In a multimodal model it is a
// part, but where transformers' AutoModelForCausalLM makes a model of the text part.
std::string body_in_files(const std::string& base) {
  if (!is_file(base + "/config.json")) return "model.";
  const HfConfig config = HfConfig::load(base);
  const bool whole = config.multimodal() && !family_of(config).causal_lm_is_text_part;
  return whole ? "model.language_model." : "model.";
}

// A directory's path as it is found from elsewhere, too; a hub's id as it is.
std::string findable(const std::string& base) {
  std::error_code none;
  const bool here = std::filesystem::is_directory(base, none) || stands_for_directory(base);
  if (base.empty() || !here) return base;
  const std::filesystem::path whole = std::filesystem::absolute(base, none);
  return none ? base : whole.lexically_normal().string();
}

// `tower`: null where the model has taken none.
std::string in_body(const std::string& path, const std::string& body, const Tower* tower) {
  constexpr std::string_view kOwn = "model.";
  if (tower && is_of_tower(*tower->family, path)) return path;
  return path.starts_with(kOwn) ? body + path.substr(kOwn.size()) : path;
}

// What an adapter is on, as target_modules and target_parameters name it: by the ends of names
// where all that end so have one, else by whole paths: other parts of a multimodal model end so,
// too.
class TargetNames {
 public:
  TargetNames(std::string body, const Tower* tower) : body_(std::move(body)), tower_(tower) {}
  void add(const std::string& end, const std::string& path, bool adapted) {
    Ending& ending = endings_[end];
    ending.all.insert(path);
    if (adapted) ending.adapted.insert(path);
  }
  bool empty() const {
    return std::all_of(endings_.begin(), endings_.end(),
                       [](const auto& e) { return e.second.adapted.empty(); });
  }
  std::vector<std::string> written() const {
    std::vector<std::string> out;
    for (const auto& [end, ending] : endings_)
      if (ending.adapted.size() == ending.all.size() && body_ == "model.")
        out.push_back(end);
      else
        for (const std::string& path : ending.adapted) out.push_back(in_body(path, body_, tower_));
    return out;
  }

 private:
  struct Ending {
    std::set<std::string> all, adapted;
  };
  std::string body_;
  const Tower* tower_;
  std::map<std::string, Ending> endings_;
};

}  // namespace

void save_adapter(nn::Module& model, const LoraConfig& config, const std::string& base,
                  const std::string& directory, int adapter) {
  TensorMap tensors;
  const auto* const whole_model = dynamic_cast<const Model*>(&model);
  const std::string body = whole_model && !whole_model->whole.empty()
                               ? body_of_whole(whole_model->whole)
                               : body_in_files(base);
  const Tower* const tower = whole_model ? whole_model->tower() : nullptr;
  TargetNames modules(body, tower), parameters(body, tower);
  std::vector<SizedLayer> layers;
  const std::vector<Target> targets = linear_layers(model);
  const bool no_mlp_modules = has_experts_for_mlps(targets);
  for (const Target& t : targets) {
    nn::Lora* lora = t.layer->adapter(adapter);
    std::string path = t.path, end = last_part(path);
    if (const auto expert = expert_name(t.path)) {
      path = expert->prefix + expert->layer;
      end = parameter_stem(expert->prefix) + expert->layer;
    } else if (t.is(nn::Role::kRouter) || (no_mlp_modules && !t.of_tower && is_expert_name(end))) {
      end = last_two_parts(path) + ".weight";
      path += ".weight";
    }
    TargetNames& names = path == t.path ? modules : parameters;
    names.add(end, path, lora);
    if (!lora) continue;
    layers.push_back(
        {in_body(path, body, tower), {lora->lora_A.weight.whole_shape()[0], lora->scale}});
    tensors[matrix_name(t, "lora_A")] = whole_view(lora->lora_A.weight);
    tensors[matrix_name(t, "lora_B")] = whole_view(lora->lora_B.weight);
    if (lora->lora_magnitude_vector)
      tensors[magnitude_name(t)] = whole_view(lora->lora_magnitude_vector->weight);
  }
  join_expert_adapters(tensors);
  Json whole = Json::array();
  Json rows = Json::object();
  for (const WholeModule& m : whole_modules(model)) {
    if (adapter != 0 || !m.versions->replaced()) continue;
    if (const nn::TokenRows* const trained = m.versions->rows()) {
      tensors[rows_name(m)] = whole_view(trained->weight);
      rows[last_part(m.path)] = trained->ids;
      continue;
    }
    tensors[whole_name(m)] = whole_view(*m.weight);
    if (is_tied(model)) tensors[kHeadTensor] = whole_view(*m.weight);
    whole.push_back(last_part(m.path));
  }
  const bool tied = !whole.empty() && is_tied(model);
  nn::Parameter* score = score_weight(model);
  if (score) whole.push_back(kScorePath);
  if (score) tensors[kScoreTensor] = whole_view(*score);
  TensorMap named;
  for (auto& [name, view] : tensors)
    named[kPrefix + in_body(name.substr(kPrefix.size()), body, tower)] = std::move(view);
  tensors = std::move(named);
  if (directory.empty()) return write_safetensors("", tensors);
  std::filesystem::create_directories(directory);
  SafetensorsMetadata about = base_format(model);
  if (const std::vector<std::string> added = new_tokens_of(base); !added.empty()) {
    about[kNewTokens] = dump_json(added);
    about[kNewVocabulary] = std::to_string(table_rows(model));
  }
  write_safetensors(directory + "/adapter_model.safetensors", tensors, about);
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
               {"target_modules", modules.empty() ? Json() : Json(modules.written())},
               {"bias", "none"},
               {"fan_in_fan_out", false},
               {"inference_mode", true},
               {"init_lora_weights", true},
               {"modules_to_save", whole.empty() ? Json() : whole}};
  if (!parameters.empty()) json["target_parameters"] = parameters.written();
  const LoraConfig sized = with_patterns_of(config, layers);
  for (const LayerPattern& p : sized.rank_pattern)
    json["rank_pattern"][p.pattern] = static_cast<int64_t>(p.value);
  for (const LayerPattern& p : sized.alpha_pattern) json["alpha_pattern"][p.pattern] = p.value;
  if (!rows.empty()) json["trainable_token_indices"] = rows;
  if (tied) json["ensure_weight_tying"] = true;  // older versions of PEFT do not know the key
  write_file_atomic(directory + "/adapter_config.json", json.dump(2) + "\n");
}

}  // namespace temper::models
