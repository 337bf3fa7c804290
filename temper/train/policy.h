// The model that a run trains: all of it, or an adapter on a frozen base.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "temper/data/images/image_format.h"
#include "temper/dist/mesh.h"
#include "temper/models/adapters/lora_config.h"
#include "temper/models/model.h"
#include "temper/text/chat/chat_template.h"
#include "temper/text/tokenizer/tokenizer.h"
#include "temper/train/config.h"

namespace temper::train {

struct Policy {
  std::unique_ptr<models::CausalLM> model;
  std::optional<models::LoraConfig> lora;      // none: all weights train
  std::shared_ptr<const Tokenizer> tokenizer;  // null where the directory has none
  std::shared_ptr<const ChatTemplate> chat;    // null without one
  // The ranks that compute the same rows, and how they divide the model (models::Storage); models
  // that run beside it are divided alike.
  std::shared_ptr<dist::Group> tensor = nullptr;
  bool by_expert = false;
};

// A reward model, in the policy's place.
struct ScalarPolicy {
  std::unique_ptr<models::ScalarModel> model;
  std::optional<models::LoraConfig> lora;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> chat;
};

// The policy of the sections model and adapter; for an adapter that is trained on, its own values
// are set in the config. Throws ConfigError, DataError.
// Where ranks of the mesh will share out what trains, weights stay mapped from their files until
// then, so that each rank reads its part alone.
Policy load_policy(RunConfig& config, const dist::Mesh& mesh = {});
// The same with a scalar head: the directory's own, or a fresh one drawn from the config's seed.
ScalarPolicy load_scalar_policy(RunConfig& config, const dist::Mesh& mesh = {});

// How the policy reads the images of rows; null: it sees none.
std::shared_ptr<const data::ImageFormat> images_of(const RunConfig& config,
                                                   const Tokenizer* tokenizer);

// A model directory, or an adapter's, that load_policy and Hugging Face read. As Trainable::save.
void save_policy(const Policy& policy, const std::string& base, const std::string& directory);
void save_policy(const ScalarPolicy& policy, const std::string& base, const std::string& directory);

// The steps of load_policy, for checks of a run that does not load it.

// The texts that become tokens: model.new_tokens, or those of the adapter to go on from. Throws
// ConfigError where the two differ.
std::vector<std::string> new_tokens_of(const RunConfig& config);
// Finds the model that the config names, which it then names by its directory, and gives it the
// tokenizer and new tokens that the config, or the adapter to go on from, says. Throws ConfigError.
void find_model(RunConfig& config);
// What a model directory says that is not computed as it says (models/config_values.h,
// models/files/untied_head.h), to be printed.
std::vector<std::string> model_warnings(const std::string& directory);
// The adapter that begins as the config says, where it names none to go on from; tokenizer: of the
// model, or null. Throws ConfigError.
models::LoraConfig new_adapter(const RunConfig& config, const Tokenizer* tokenizer);
// How the config keeps the policy's weights. Throws ConfigError for what does not fit together.
models::Storage policy_storage(const RunConfig& config);
// Adds the adapter to go on from (adapter.path); the config then says what it is. Throws
// ConfigError where a written key disagrees with it.
models::LoraConfig resume_adapter(nn::Module& model, RunConfig& config, const Tokenizer* tokenizer);
// Throws ConfigError where rows of embeddings train (`trained`) that ranks divide.
void check_token_rows(const RunConfig& config, bool trained);
// `adapted`: the adapter is on a head whose weight is the embedding's. Throws ConfigError where
// ranks share out that weight: a unit passes on gradients of its own parameters alone.
void check_tied_head(const RunConfig& config, bool adapted);
// Where model.vision says that the tower trains, or its projector, the model takes it, before it
// gets an adapter; afterwards what does not train is frozen, and its encoder is told.
void take_tower(models::Model& model, const RunConfig& config);
void train_tower(models::Model& model, const RunConfig& config);
// Throws ConfigError unless the layers that the adapter is on and model.vision agree.
void check_tower_adapter(const RunConfig& config, models::Model& model,
                         const std::vector<std::string>& adapted);

}  // namespace temper::train
