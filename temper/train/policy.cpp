#include "temper/train/policy.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <filesystem>

#include "temper/base/error.h"
#include "temper/models/adapters/adapter.h"
#include "temper/models/adapters/adapter_files.h"
#include "temper/models/config_values.h"
#include "temper/models/files/checkpoint_format.h"
#include "temper/models/files/directory.h"
#include "temper/models/files/hf_config.h"
#include "temper/models/files/load.h"
#include "temper/models/files/new_tokens.h"
#include "temper/models/files/untied_head.h"
#include "temper/models/gguf/gguf_files.h"
#include "temper/models/vision/encoder.h"
#include "temper/models/vision/load.h"
#include "temper/text/chat/template_date.h"
#include "temper/train/joint/joint_runs.h"
#include "temper/train/parameters.h"

namespace temper::train {
namespace {

std::string joined(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return "[" + out + "]";
}

std::string said(const std::vector<models::LayerPattern>& patterns) {
  std::string out;
  for (const models::LayerPattern& p : patterns)
    out += str(out.empty() ? "" : ", ", p.pattern, ": ", p.value);
  return "{" + out + "}";
}

}  // namespace

namespace {

// Whether the base's files hold weights in a format of that name.
bool holds(const std::string& base, const std::string& storage) {
  const std::optional<ops::WeightFormat> format = ops::format_named(storage);
  return format && models::held_formats(base).contains(*format);
}

// An adapter makes up for the rounding of the weights that it was trained on.
void warn_of_other_format(RunConfig& config) {
  const std::optional<models::BaseFormat> trained =
      models::adapter_base_format(*config.adapter.path);
  if (!trained || !trained->is_rounded()) return;
  const models::Storage storage = policy_storage(config);
  if (storage.blocks && ops::row_of(*storage.blocks).name == trained->storage) return;
  if (storage.file && holds(config.model.path, trained->storage)) return;
  config.warnings.push_back(str(config.where("adapter.path"), ": ", *config.adapter.path,
                                " was trained on ", trained->storage,
                                " weights, and these are not; model.storage: ", trained->storage,
                                " gives what it was trained with"));
}

}  // namespace

namespace {

// The id of the one token that the text is: as it is found in text, else as the vocabulary spells
// it.
int64_t token_of_text(const RunConfig& config, const Tokenizer& tokenizer,
                      const std::string& text) {
  const std::vector<int32_t> ids = tokenizer.encode(text);
  if (ids.size() == 1) return ids[0];
  const std::optional<int32_t> spelled = tokenizer.id_of(text);
  config.require(spelled.has_value(), "adapter.train_tokens", "`", text, "` is ", ids.size(),
                 " tokens, expected one; model.new_tokens makes a token of it");
  return *spelled;
}

// adapter.train_tokens.
std::vector<models::TrainedTokens> trained_tokens(const RunConfig& config,
                                                  const Tokenizer* tokenizer) {
  const models::TrainTokens& asked = config.adapter.train_tokens;
  if (!asked.any()) return {};
  config.require(
      !asked.all_new || !config.model.new_tokens.empty(), "adapter.train_tokens",
      "found new, but model.new_tokens is empty: name the tokens there, or list texts of "
      "existing tokens");
  config.require(tokenizer != nullptr, "adapter.train_tokens", config.model.path,
                 " has no tokenizer to find them in");
  models::TrainedTokens found;
  for (const std::string& text : asked.all_new ? config.model.new_tokens : asked.texts)
    found.ids.push_back(token_of_text(config, *tokenizer, text));
  std::ranges::sort(found.ids);
  const auto twice = std::ranges::adjacent_find(found.ids);
  config.require(twice == found.ids.end(), "adapter.train_tokens", "token ",
                 twice == found.ids.end() ? 0 : *twice, " is named twice");
  return {found};
}

std::string said(const std::vector<models::TrainedTokens>& tokens) {
  std::string out;
  for (const models::TrainedTokens& t : tokens)
    out += str(out.empty() ? "" : ", ", t.ids.size(), " tokens of ", t.module);
  return out.empty() ? "none" : out;
}

}  // namespace

models::LoraConfig new_adapter(const RunConfig& run, const Tokenizer* tokenizer) {
  const models::AdapterSection& section = run.adapter;
  models::LoraConfig config{section.rank,           section.alpha,          section.dropout,
                            section.use_rslora,     section.target_modules, section.use_dora,
                            section.modules_to_save};
  config.rank_pattern = section.rank_pattern.list;
  config.alpha_pattern = section.alpha_pattern.list;
  config.trained_tokens = trained_tokens(run, tokenizer);
  return config;
}

void check_token_rows(const RunConfig& config, bool trained) {
  config.require(!trained || (config.mesh.fsdp == 1 && config.mesh.tensor == 1),
                 "adapter.train_tokens",
                 "rows of embeddings that ranks divide do not train; set mesh.fsdp: 1 and "
                 "mesh.tensor: 1");
}

models::LoraConfig resume_adapter(nn::Module& model, RunConfig& config,
                                  const Tokenizer* tokenizer) {
  models::AdapterSection& written = config.adapter;
  models::LoraConfig found = models::load_adapter(model, *written.path);
  warn_of_other_format(config);
  const auto agree = [&](const char* key, bool same, const auto& value) {
    config.require(!config.was_set(key) || same, key, "the adapter ", *written.path, " says ",
                   value, "; leave the key out or make it agree");
  };
  agree("adapter.rank", written.rank == found.rank, found.rank);
  agree("adapter.alpha", written.alpha == found.alpha, found.alpha);
  agree("adapter.rank_pattern", written.rank_pattern.list == found.rank_pattern,
        said(found.rank_pattern));
  agree("adapter.alpha_pattern", written.alpha_pattern.list == found.alpha_pattern,
        said(found.alpha_pattern));
  agree("adapter.use_rslora", written.use_rslora == found.rank_stabilized,
        found.rank_stabilized ? "true" : "false");
  agree("adapter.use_dora", written.use_dora == found.dora, found.dora ? "true" : "false");
  agree("adapter.modules_to_save", models::saved_modules_are(model, written.modules_to_save),
        joined(found.modules_to_save));
  // Null is what the adapter says: a config has no word for rows of a head.
  agree("adapter.train_tokens",
        !written.train_tokens.any() || trained_tokens(config, tokenizer) == found.trained_tokens,
        said(found.trained_tokens));
  agree("adapter.target_modules", models::targets_are(model, written.target_modules),
        joined(found.target_modules));
  if (!config.has_dropout())
    found.dropout = 0;
  else if (config.was_set("adapter.dropout"))
    found.dropout = written.dropout;
  config.require(found.dropout == 0 || !models::adapts_head(model), "adapter.dropout",
                 "the adapter " + *written.path +
                     " is on lm_head too, where there is no dropout; set adapter.dropout: 0");
  config.require(found.dropout == 0 || !models::adapts_mixture(model), "adapter.dropout",
                 "the adapter " + *written.path +
                     " is also on a mixture's routers or experts, where there is no dropout; set "
                     "adapter.dropout: 0");
  model.visit({.linear = [&](const std::string&, nn::Linear& layer) {
    if (layer.lora()) layer.lora()->dropout = found.dropout;
  }});
  written.rank = found.rank;
  written.alpha = found.alpha;
  written.rank_pattern.list = found.rank_pattern;
  written.alpha_pattern.list = found.alpha_pattern;
  written.dropout = found.dropout;
  written.use_rslora = found.rank_stabilized;
  written.use_dora = found.dora;
  written.modules_to_save = found.modules_to_save;
  written.target_modules = found.target_modules;
  return found;
}

namespace {

// The formats in which the base's files hold quantized weights, whatever its config.json says.
std::set<ops::WeightFormat> held_by_base(const std::string& path) {
  try {
    return models::held_formats(path);
  } catch (const Error&) {
    return {};  // what reads the weights says what is wrong with them
  }
}

// What model.storage asks of a frozen base, or adapter.method: qlora where it says nothing.
std::optional<models::StorageName> asked_storage(const RunConfig& config,
                                                 const std::set<ops::WeightFormat>& held) {
  using models::StorageName;
  const bool qlora = config.adapter.method == models::AdapterSection::Method::kQlora;
  const std::optional<StorageName> asked = config.model.storage;
  if (!asked) return qlora && held.empty() ? StorageName::kNf4 : asked;
  const std::optional<ops::WeightFormat> format = models::format_of(*asked);
  const std::string& path = config.model.path;
  if (!format) {
    config.require(!qlora || !held.empty(), "model.storage",
                   "file keeps weights as their files "
                   "hold them, and ",
                   path, " holds none quantized; choose nf4");
    return asked;
  }
  const ops::FormatRow& row = ops::row_of(*format);
  config.require(!qlora || row.bits == 4, "model.storage",
                 "adapter.method: qlora keeps the weights in " + models::four_bit_names() +
                     ", or as their files hold them (file); for others choose lora");
  config.require(!row.of_files || held.contains(*format), "model.storage", row.name,
                 " keeps weights as their files hold them, and ", path, " holds none in ",
                 row.title, "; choose nf4, int8 or bfloat16");
  return asked;
}

}  // namespace

// The format of the base's weights: those that neither train nor were asked for in float32 take
// less.
models::Storage policy_storage(const RunConfig& config) {
  const bool frozen = config.has_adapter();
  const std::string& path = config.model.path;
  const models::HfConfig hf = models::HfConfig::load(path);
  models::check_quantization(hf.json(), path + "/config.json");
  const std::set<ops::WeightFormat> held = held_by_base(path);
  const bool quantized = hf.has("quantization_config") || !held.empty();
  const std::optional<models::StorageName> asked = config.model.storage;
  config.require(frozen || !quantized || asked, "model.path",
                 "its weights are quantized, and such weights are frozen: choose adapter.method: "
                 "lora or qlora, or model.storage: float32 or bfloat16, which trains what they "
                 "stand for");
  const bool trained = asked == models::StorageName::kFloat32 ||
                       (quantized && asked == models::StorageName::kBFloat16);
  config.require(!asked || frozen || trained, "model.storage",
                 "weights that train are kept in float32; other formats are of frozen weights: "
                 "choose adapter.method: lora or qlora");
  const bool bfloat16 = config.model.dtype == models::ModelSection::Dtype::kBfloat16 ||
                        (!frozen && asked == models::StorageName::kBFloat16);
  models::Storage storage = models::frozen_storage(
      bfloat16, frozen ? asked_storage(config, held) : models::StorageName::kFloat32);
  storage.arithmetic = config.model.arithmetic;
  storage.cache_dtype = config.cache_dtype();
  using Vision = models::ModelSection::Vision;
  config.require(!config.model.trains_tower() || models::vision_family_of(path), "model.vision",
                 path, " has no vision tower that could train; expected frozen or none");
  storage.whole = storage.sees = config.model.vision != Vision::kNone;
  config.require(
      models::uses_arithmetic(storage, held), "model.arithmetic",
      storage.arithmetic == ops::Arithmetic::kInteger
          ? "integer is for frozen quantized weights (not FP8), and there are none: choose "
            "model.storage: int8 or nf4 with adapter.method: lora or qlora"
          : "fast and amx are for bfloat16 weights (model.dtype or model.storage), amx also for "
            "quantized ones; float32 weights need exact");
  return storage;
}

namespace {

models::Storage storage_of(const RunConfig& config, const dist::Mesh& mesh) {
  models::Storage storage = policy_storage(config);
  storage.tensor = mesh.tensor;
  storage.by_expert = mesh.by_expert;
  storage.token_ranks = mesh.context;
  return storage;
}

// Adds the adapter, chooses what trains, and loads tokenizer and template.
template <class Trained>
void prepare(Trained& policy, RunConfig& config, const dist::Mesh& mesh) {
  const std::string& directory = config.model.path;
  const models::AdapterSection& a = config.adapter;
  take_tower(*policy.model, config);
  policy.tokenizer = Tokenizer::load_directory(directory);
  if (a.path) {
    policy.lora = resume_adapter(*policy.model, config, policy.tokenizer.get());
  } else if (config.has_adapter()) {
    policy.lora = new_adapter(config, policy.tokenizer.get());
    check_token_rows(config, !policy.lora->trained_tokens.empty());
    models::add_lora(*policy.model, *policy.lora, static_cast<uint64_t>(config.seed));
  } else {
    policy.model->each_parameter(
        [](const std::string&, nn::Parameter& p) { p.set_trainable(true); });
  }
  check_tied_head(config, models::adapts_tied_head(*policy.model));
  check_token_rows(config, models::trains_token_rows(*policy.model));
  check_tower_adapter(config, *policy.model, models::adapted_layers(*policy.model));
  train_tower(*policy.model, config);
  freeze_parameters(*policy.model, config.train.freeze, config.where("train.freeze"));
  // Constants too, where nothing is frozen: as long as a number of a file is mapped, what was read
  // of the file stays in memory.
  const bool leaves_file = config.train.freeze.empty();
  if (!policy.lora && mesh.fsdp->size() == 1)
    policy.model->each_parameter([&](const std::string&, nn::Parameter& p) {
      if (p.trainable() || (leaves_file && !ops::is_quantized(p.format()))) p.own();
    });
  ChatOptions options = config.data.chat_options();
  options.adapter = a.path.value_or("");
  if (policy.tokenizer) policy.chat = ChatTemplate::find(directory, options);
  // Written to the resolved config, which records the date that the rows were rendered with.
  if (policy.chat && policy.chat->writes_date())
    config.data.template_date = to_date_text(policy.chat->date());
}

template <class Trained>
void save_as(const Trained& policy, const std::string& base, const std::string& directory,
             models::HeadKind head) {
  // Weights that were written to while they were mapped are not what was trained.
  policy.model->files.check_unchanged();
  const bool writes = !directory.empty();
  if (policy.lora) {
    models::save_adapter(*policy.model, *policy.lora, base, directory);
    if (writes) models::copy_tokenizer_files(base, directory);
  } else {
    const bool whole = !policy.model->whole.empty();
    if (writes) models::write_model_files({base, base, whole}, directory, at::kFloat, head);
    models::save_weights(*policy.model, directory, at::kFloat);
  }
  // The model was trained with this template and its variables, so they are part of it.
  if (writes && policy.chat) policy.chat->save(directory);
}

}  // namespace

void take_tower(models::Model& model, const RunConfig& config) {
  if (!config.model.trains_tower()) return;
  model.take_tower().projector_alone =
      config.model.vision == models::ModelSection::Vision::kProjector;
}

void train_tower(models::Model& model, const RunConfig& config) {
  models::Tower* const tower = model.tower();
  if (!tower) return;
  bool trains = false;
  tower->each_parameter([&](const std::string& name, nn::Parameter& p) {
    if (!config.has_adapter() && tower->projector_alone && !tower->is_projector(name))
      p.set_trainable(false);
    trains = trains || p.trainable();
  });
  model.vision->set_trains(trains);
}

void check_tower_adapter(const RunConfig& config, models::Model& model,
                         const std::vector<std::string>& adapted) {
  if (!config.has_adapter()) return;
  const models::Tower* const tower = model.tower();
  std::vector<std::string> of_tower;
  for (const std::string& path : adapted)
    if (tower && models::is_of_tower(*tower->family, path))
      of_tower.push_back(models::own_name_in_tower(path));
  config.require(of_tower.empty() || config.model.trains_tower(), "adapter.path",
                 "the adapter is on layers of the vision tower too, which model.vision leaves "
                 "as it is; expected projector or train");
  if (!config.model.trains_tower()) return;
  config.require(!of_tower.empty(), "model.vision",
                 "with an adapter, what trains of the vision tower are the layers that "
                 "adapter.target_modules names, and it names none; as in [q_proj, v_proj, ",
                 models::tower_layer(model), "]");
  const bool beyond = std::ranges::any_of(
      of_tower, [&](const std::string& layer) { return !tower->is_projector(layer); });
  config.require(config.model.vision == models::ModelSection::Vision::kTrain || !beyond,
                 "adapter.path",
                 "the adapter is on layers of the vision tower that are not its projector's; "
                 "expected model.vision: train");
}

void check_tied_head(const RunConfig& config, bool adapted) {
  config.require(config.mesh.fsdp == 1 || !adapted, "adapter.target_modules",
                 "lm_head of a model whose head is tied to its embeddings does not train where "
                 "ranks share out the weights; leave lm_head out, or set mesh.fsdp: 1");
}

std::vector<std::string> new_tokens_of(const RunConfig& config) {
  const std::vector<std::string>& tokens = config.model.new_tokens;
  if (!config.adapter.path) return tokens;
  std::vector<std::string> theirs = models::adapter_new_tokens(*config.adapter.path);
  config.require(theirs.empty() || tokens.empty() || theirs == tokens, "model.new_tokens",
                 "the adapter ", *config.adapter.path, " says ", joined(theirs),
                 "; leave the key out or make it agree");
  return theirs.empty() ? tokens : theirs;
}

void find_model(RunConfig& config) {
  config.model.path = models::resolve_model_path(config.model.path);
  if (config.model.tokenizer)
    models::use_tokenizer(config.model.path, *config.model.tokenizer,
                          config.where("model.tokenizer"));
  config.model.new_tokens = new_tokens_of(config);
  models::use_new_tokens(config.model.path, config.model.new_tokens,
                         config.where("model.new_tokens"));
}

namespace {

void use_model(RunConfig& config) {
  models::use_device(config.device_choice());
  find_model(config);
  for (std::string& warning : model_warnings(config.model.path))
    config.warnings.push_back(std::move(warning));
}

}  // namespace

std::vector<std::string> model_warnings(const std::string& directory) {
  const models::HfConfig config = models::HfConfig::load(directory);  // first, for its errors
  std::vector<std::string> warnings{models::untied_head(directory),
                                    models::unapplied_dropout(config)};
  std::erase(warnings, "");
  return warnings;
}

Policy load_policy(RunConfig& config, const dist::Mesh& mesh) {
  use_model(config);
  Policy policy;
  policy.tensor = mesh.tensor;
  policy.by_expert = mesh.by_expert;
  const models::Storage storage = storage_of(config, mesh);
  JointRun* const joint = JointRun::current();
  policy.model = joint ? joint->load(config.model.path, storage)
                       : models::load_model(config.model.path, storage);
  prepare(policy, config, mesh);
  if (joint && policy.lora) joint->share_passes(*policy.model, *policy.lora);
  return policy;
}

ScalarPolicy load_scalar_policy(RunConfig& config, const dist::Mesh& mesh) {
  use_model(config);
  ScalarPolicy policy;
  const models::Storage storage = storage_of(config, mesh);
  const auto seed = static_cast<uint64_t>(config.seed);
  JointRun* const joint = JointRun::current();
  policy.model = joint ? joint->load_scalar(config.model.path, storage, seed)
                       : models::load_scalar_model(config.model.path, storage, seed);
  prepare(policy, config, mesh);
  if (joint && policy.lora) joint->share_passes(*policy.model, *policy.lora);
  return policy;
}

std::shared_ptr<const data::ImageFormat> images_of(const RunConfig& config,
                                                   const Tokenizer* tokenizer) {
  if (config.model.vision == models::ModelSection::Vision::kNone ||
      !models::vision_family_of(config.model.path))
    return nullptr;
  return data::find_image_format(config.model.path, tokenizer, config.data.image_options());
}

void save_policy(const Policy& policy, const std::string& base, const std::string& directory) {
  save_as(policy, base, directory, models::HeadKind::kVocabulary);
}

void save_policy(const ScalarPolicy& policy, const std::string& base,
                 const std::string& directory) {
  save_as(policy, base, directory, models::HeadKind::kScalar);
}

}  // namespace temper::train
