#include "temper/train/roles/trained_parts.h"

#include <algorithm>

#include "temper/base/error.h"
#include "temper/models/adapters/adapter.h"
#include "temper/models/adapters/adapter_files.h"
#include "temper/models/files/directory.h"
#include "temper/models/files/new_tokens.h"
#include "temper/models/vision/encoder.h"
#include "temper/models/vision/load.h"
#include "temper/train/roles/parameters.h"
#include "temper/train/roles/policy.h"

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

// The adapter that begins as the config says, where it names none to go on from.
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

// Rows of embeddings train (`trained`).
void check_token_rows(const RunConfig& config, bool trained) {
  config.require(!trained || (config.mesh.fsdp == 1 && config.mesh.tensor == 1),
                 "adapter.train_tokens",
                 "rows of embeddings that ranks divide do not train; set mesh.fsdp: 1 and "
                 "mesh.tensor: 1");
}

// Adds the adapter to go on from (adapter.path); the config then says what it is. Throws
// ConfigError where a written key disagrees with it.
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

// `adapted`: the adapter is on a head whose weight is the embedding's, where ranks may share out
// that weight: a unit passes on gradients of its own parameters alone.
void check_tied_head(const RunConfig& config, bool adapted) {
  config.require(config.mesh.fsdp == 1 || !adapted, "adapter.target_modules",
                 "lm_head of a model whose head is tied to its embeddings does not train where "
                 "ranks share out the weights; leave lm_head out, or set mesh.fsdp: 1");
}

// `adapted`: the adapter is on the head. A model without values, which is but planned with, has no
// ranks that divide it.
void check_divided_head(const RunConfig& config, bool adapted) {
  models::check_head_is_whole(adapted && config.mesh.tensor > 1 && config.divides_layers());
}

// The layers that the adapter is on and model.vision agree.
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

}  // namespace

std::vector<std::string> new_tokens_of(const RunConfig& config) {
  const std::vector<std::string>& tokens = config.model.new_tokens;
  if (!config.adapter.path) return tokens;
  std::vector<std::string> theirs = models::adapter_new_tokens(*config.adapter.path);
  config.require(theirs.empty() || tokens.empty() || theirs == tokens, "model.new_tokens",
                 "the adapter ", *config.adapter.path, " says ", joined(theirs),
                 "; leave the key out or make it agree");
  return theirs.empty() ? tokens : theirs;
}

std::optional<models::LoraConfig> choose_trained(models::Model& model, RunConfig& config,
                                                 const Tokenizer* tokenizer, AdapterValues values) {
  take_tower(model, config);
  std::optional<models::LoraConfig> lora;
  if (config.adapter.path) {
    lora = resume_adapter(model, config, tokenizer);
  } else if (config.has_adapter()) {
    lora = new_adapter(config, tokenizer);
    check_token_rows(config, !lora->trained_tokens.empty());
    models::attach_lora(model, *lora);
    if (values == AdapterValues::kDrawn)
      models::init_lora(model, static_cast<uint64_t>(config.seed));
  } else {
    model.each_parameter([](const std::string&, nn::Parameter& p) { p.set_trainable(true); });
  }
  check_divided_head(config, models::adapts_head(model));
  check_tied_head(config, models::adapts_tied_head(model));
  check_token_rows(config, models::trains_token_rows(model));
  check_tower_adapter(config, model, models::adapted_layers(model));
  train_tower(model, config);
  freeze_parameters(model, config.train.freeze, config.where("train.freeze"));
  return lora;
}

}  // namespace temper::train
