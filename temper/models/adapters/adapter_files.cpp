#include "temper/models/adapters/adapter_files.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <filesystem>

#include "temper/base/error.h"
#include "temper/io/torch_file.h"
#include "temper/models/adapters/adapter_config.h"
#include "temper/models/adapters/expert_adapters.h"
#include "temper/models/files/new_tokens.h"
#include "temper/models/files/tensors.h"
#include "temper/models/vision/encoder.h"
#include "temper/models/vision/load.h"

namespace temper::models {
namespace {

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

// What an adapter of a language model's head left in the files for a model without that head.
void drop_head(TensorMap& tensors, AdapterConfig& config) {
  constexpr const char* kHead = "lm_head";
  std::erase_if(config.token_rows,
                [](const TrainedTokens& t) { return last_part(t.module) == kHead; });
  tensors.erase(rows_name(kHead));
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
    const bool stands_for_both = tied_file && own != tensors.end() && head == tensors.end();
    check<ConfigError>(!tied || same || stands_for_both, directory, ": holds ",
                       own == tensors.end() ? "lm_head" : "embed_tokens",
                       " as a weight of its own (modules_to_save), but the model's head is tied to "
                       "its embeddings (tie_word_embeddings); expected one weight for both, as "
                       "ensure_weight_tying: true makes it");
    m.versions->replace(*m.weight);
    take(tensors, whole_name(m), *m.weight, directory);
    names.push_back(last_part(m.path));
  }
  if (tied) tensors.erase(kHeadTensor);
  return names;
}

}  // namespace

namespace {

// Takes the tensors of a vision tower out of those of a model that sees, which takes its tower for
// them; by the names of its modules.
TensorMap take_of_tower(TensorMap& tensors, nn::Module& model) {
  auto* const whole = dynamic_cast<Model*>(&model);
  TensorMap taken;
  if (!whole || !whole->vision) return taken;
  const auto is_of_some_tower = [](const std::string& name) {
    return std::ranges::any_of(vision_families().names(), [&](const std::string& family) {
      return is_of_tower(vision_families().find(family), name);
    });
  };
  std::erase_if(tensors, [&](auto& tensor) {
    if (!tensor.first.starts_with(kPrefix)) return false;
    const std::string own = own_name_in_tower(tensor.first.substr(kPrefix.size()));
    if (!is_of_some_tower(own) || !is_of_tower(*whole->take_tower().family, own)) return false;
    taken[str(kPrefix, kTowerParent, ".", own)] = std::move(tensor.second);
    return true;
  });
  return taken;
}

// The tensors by the names of a language model alone. Files of a multimodal model have a prefix
// more, which becomes `body`, and adapters of its other parts, which text does not go through;
// transformers 4 called the router of Granite's mixtures by a module of its own.
TensorMap of_language_model(TensorMap tensors, std::string& body) {
  constexpr std::pair<const char*, const char*> kPrefixes[] = {
      {"model.language_model.", "model."},
      {"language_model.model.", "model."},
      {"model.text_model.", "model."},
      {"language_model.lm_head.", "lm_head."}};
  const std::string kLayer = ".router.layer.lora_";
  TensorMap out;
  bool multimodal = false;
  for (auto& [name, view] : tensors) {
    std::string own = name;
    for (const auto& [prefix, replacement] : kPrefixes)
      if (name.starts_with(kPrefix + prefix)) {
        own = kPrefix + replacement + name.substr(kPrefix.size() + std::string(prefix).size());
        if (!name.starts_with(kPrefix + "language_model.lm_head.")) body = prefix;
        multimodal = true;
        break;
      }
    if (const size_t at = own.find(kLayer); at != own.npos)
      own.replace(at, kLayer.size(), ".router.lora_");
    check<ConfigError>(!out.contains(own), name, ": is there under another name, too");
    out[own] = std::move(view);
  }
  if (multimodal)
    std::erase_if(out, [](const auto& tensor) {
      for (const char* part : {".vision_tower.", ".audio_tower.", ".multi_modal_projector.",
                               ".embed_vision.", ".embed_audio.", ".visual."})
        if (tensor.first.find(part) != std::string::npos) return true;
      return false;
    });
  return out;
}

TensorMap read_tensors(const std::string& directory, std::string& body, nn::Module& model) {
  const std::string weights = directory + "/adapter_model.safetensors";
  TensorMap tensors = std::filesystem::exists(weights)
                          ? read_safetensors(weights)
                          : read_torch_file(directory + "/adapter_model.bin");
  TensorMap of_tower = take_of_tower(tensors, model);
  tensors = of_language_model(std::move(tensors), body);
  tensors.merge(of_tower);
  return tensors;
}

std::vector<std::string> names_behind_prefix(const TensorMap& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, view] : tensors)
    names.push_back(name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name);
  return names;
}

// What is left has no place in the model.
void check_all_taken(const TensorMap& tensors, const std::string& directory) {
  if (tensors.empty()) return;
  for (const auto& [name, view] : tensors)
    check<ConfigError>(name.find(".lora_embedding_") == name.npos, directory, ": ", name,
                       ": LoRA on embeddings is not supported (`target_modules`); merge the "
                       "adapter with PEFT's merge_and_unload");
  const auto whole = std::find_if(tensors.begin(), tensors.end(), [](const auto& tensor) {
    return tensor.first.find(".lora_") == std::string::npos;
  });
  check<ConfigError>(whole == tensors.end(), directory, ": the model has no place for ",
                     whole == tensors.end() ? "" : whole->first,
                     "; of `modules_to_save` embed_tokens and lm_head are supported");
  throw ConfigError(str(directory, ": the model has no place for ", tensors.begin()->first));
}

}  // namespace

LoraConfig load_adapter(nn::Module& model, const std::string& directory) {
  AdapterConfig of_file = read_adapter_config(directory);
  auto* const whole = dynamic_cast<Model*>(&model);
  check_new_tokens(directory, table_rows(model),
                   whole ? whole->body().new_tokens() : std::vector<std::string>());
  TensorMap tensors = read_tensors(directory, of_file.body, model);
  const std::vector<std::string> file_names = names_behind_prefix(tensors);
  check_saved_modules(of_file, file_names, directory);
  const std::vector<Target> layers = linear_layers(model);
  if (join_single_adapters(tensors, layers, kPrefix, directory))
    join_gate_and_up(of_file, file_names, directory);
  divide_expert_adapters(tensors, layers, of_file.target_parameters, kPrefix, directory);
  std::vector<Target> targets;
  for (const Target& t : layers)
    if (tensors.contains(matrix_name(t, "lora_A"))) targets.push_back(t);
  if (targets.empty()) check_all_taken(tensors, directory);
  check<ConfigError>(!targets.empty(), directory,
                     ": holds no adapter for this model's linear layers");
  LoraConfig& config = of_file.lora;
  config.target_modules = names_of_targets(model, targets);
  attach(targets, model, config, sizes_of(targets, of_file, directory));
  for (const Target& t : targets) {
    take(tensors, matrix_name(t, "lora_A"), t.layer->lora()->lora_A.weight, directory);
    take(tensors, matrix_name(t, "lora_B"), t.layer->lora()->lora_B.weight, directory);
    if (config.dora)
      take(tensors, magnitude_name(t), t.layer->lora()->lora_magnitude_vector->weight, directory);
    if (t.is(nn::Role::kHead)) take_head_base(tensors, t, directory);
  }
  config.modules_to_save = take_whole(tensors, model, config.tied, directory);
  nn::Parameter* const score = score_weight(model);
  if (score) drop_head(tensors, of_file);
  config.trained_tokens = take_token_rows(tensors, model, of_file, directory);
  for (const Target& t : targets)
    for (const WholeModule& m : whole_modules(model))
      check<ConfigError>(
          !t.is(nn::Role::kHead) || m.weight != &t.layer->weight || !m.versions->replaced(),
          directory,
          ": adapts lm_head and brings its weight whole as well; "
          "expected one of target_modules and modules_to_save to name it");
  train_score(model);
  if (score && tensors.contains(kScoreTensor)) take(tensors, kScoreTensor, *score, directory);
  check_all_taken(tensors, directory);
  return config;
}

}  // namespace temper::models
