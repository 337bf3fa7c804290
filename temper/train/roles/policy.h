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

// Finds the model that the config names, which it then names by its directory, and gives it the
// tokenizer and new tokens that the config, or the adapter to go on from, says. Throws ConfigError.
void find_model(RunConfig& config);
// What a model directory says that is not computed as it says (models/config_values.h,
// models/files/untied_head.h), to be printed.
std::vector<std::string> model_warnings(const std::string& directory);
// How the config keeps the policy's weights. Throws ConfigError for what does not fit together.
models::Storage policy_storage(const RunConfig& config);
}  // namespace temper::train
