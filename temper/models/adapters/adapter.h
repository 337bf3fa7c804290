// LoRA and DoRA adapters as PEFT keeps them: adapter_config.json and adapter_model.safetensors.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "temper/models/config.h"
#include "temper/models/model.h"

namespace temper::models {

// Rows of an embedding or a head, by token id, that train while the others are frozen: PEFT's
// trainable_token_indices. Those of embeddings to which the head is tied are the head's, too.
struct TrainedTokens {
  std::string module = "embed_tokens";  // or lm_head: the last part of a path, or all of it
  std::vector<int64_t> ids;             // ascending
  bool operator==(const TrainedTokens&) const = default;
};

struct LoraConfig {
  int64_t rank = 16;
  double alpha = 32, dropout = 0;
  bool rank_stabilized = false;  // scale alpha / sqrt(rank) (Kalajdzievski, arXiv 2312.03732)
  std::vector<std::string> target_modules{
      "all-linear"};  // names of linear layers (their last part or whole path), lm_head too; or
                      // one regular expression that matches whole paths (is_path_expression)
  bool dora = false;  // weight-decomposed (nn::Lora); not of lm_head
  // Modules that train whole beside the low-rank matrices: embed_tokens, lm_head; of a tied model
  // either means both. A ScalarModel's head always trains.
  std::vector<std::string> modules_to_save{};
  bool tied = false;  // of a file: embeddings and head that were saved are one weight
  // Other ranks and alphas of some layers, those of the first pattern that fits. PEFT makes one
  // matrix of the adapters of experts' gate_proj and up_proj, of twice their rank.
  std::vector<LayerPattern> rank_pattern{}, alpha_pattern{};
  std::vector<TrainedTokens> trained_tokens{};  // no module twice
  int64_t largest_rank() const;
};

// Whether target_modules of this one text is a regular expression: it has other characters than
// those of paths.
bool is_path_expression(const std::string& text);

// Adds fresh adapters: A as PEFT draws it, B zero. all-linear means neither lm_head nor the layers
// of a vision tower, which are named where the model has taken it (Tower::projector_alone). An
// adapter of a head that is tied to the embeddings is the head's alone, as in PEFT. Every base
// weight is frozen but a ScalarModel's head, which trains beside the adapter. Throws ConfigError
// for a target that names no linear layer, listing those that there are, and for a pattern that
// fits none of the targets.
void add_lora(nn::Module& model, const LoraConfig& config, uint64_t seed);

// Whether `names`, as LoraConfig::target_modules has them, are exactly the layers that have an
// adapter. Throws ConfigError as add_lora.
bool targets_are(nn::Module& model, const std::vector<std::string>& names);
// The same of LoraConfig::modules_to_save.
bool saved_modules_are(nn::Module& model, const std::vector<std::string>& names);

// Reads a PEFT directory and adds its adapter to the model. Throws ConfigError.
// What the file does not say is what PEFT takes then (alpha 8). target_modules and modules_to_save
// are those of the tensors that it holds. A model that sees takes its tower where they are of the
// tower. Routers, experts and heads do not drop their inputs here,
// whatever the file's dropout.
LoraConfig load_adapter(nn::Module& model, const std::string& directory);
// Writes an adapter: the model's own, or a copy of it (Context::adapter). The base model, at the
// directory `base`, is recorded under its public_name() (load.h).
void save_adapter(nn::Module& model, const LoraConfig& config, const std::string& base,
                  const std::string& directory, int adapter = 0);

// Copies an adapter (0: the model's own) as it is now; Context::adapter = the index that this
// returns computes with the copy until it is removed. The copy does not train, is not saved and has
// no dropout: it is what reinforcement learning calls the reference where an adapter goes on.
int freeze_adapter_copy(nn::Module& model, int from = 0);
// Gives a copy's memory back; nothing computes with it any more. Its index may be given again.
void remove_adapter_copy(nn::Module& model, int index);
// The model has no adapter of its own any more; copies stay.
void remove_adapter(nn::Module& model);

// A second adapter that trains on the same frozen base: such a copy, whose parameters by name
// ("model.layers.0.self_attn.q_proj.lora_A.weight") are an optimizer's.
struct TrainedCopy {
  int index = 0;  // Context::adapter
  std::vector<std::pair<std::string, nn::Parameter*>> parameters;
};
TrainedCopy train_adapter_copy(nn::Module& model, int from = 0);

// A scalar model of the body of `model` with its adapter `index` merged, in float32; what has no
// adapter shares memory with the model. The head is left to be set.
std::unique_ptr<ScalarModel> merged_scalar_model(CausalLM& model, const HfConfig& config,
                                                 int index);
// Reads a PEFT directory as an adapter beside others that never changes: Context::adapter = the
// index that this returns computes with it. The model has no adapter of its own, before and after.
int load_frozen_adapter(CausalLM& model, const std::string& directory);

// Whether the model's own adapter is on the vocabulary's head.
bool adapts_head(nn::Module& model);
// The same of a head whose weight is the embedding's: merging it makes a model that is not
// tied (stream.h).
bool adapts_tied_head(nn::Module& model);

// Whether rows of the embeddings or the head train (LoraConfig::trained_tokens).
bool trains_token_rows(nn::Module& model);

// Whether it is on a mixture's routers or experts.
bool adapts_mixture(nn::Module& model);

// The paths of the layers that have the model's own adapter.
std::vector<std::string> adapted_layers(nn::Module& model);
// A name of a layer of the tower that the model has taken, as target_modules may have it; "": none.
std::string tower_layer(nn::Module& model);

// Adds every adapter to its base weight; the model then has none. Throws RunError where
// adapts_tied_head().
void merge_adapters(nn::Module& model);

}  // namespace temper::models
