// The parts of a model that an adapter may change, as PEFT names them. For the files of this folder
// alone.
#pragma once

#include <string>
#include <vector>

#include "temper/models/adapters/adapter.h"
#include "temper/models/model.h"

namespace temper::models {

struct Target {
  std::string path;  // "model.layers.0.self_attn.q_proj"
  nn::Linear* layer;
  bool of_tower = false;  // of a vision tower (Model::take_tower)
  bool is(nn::Role role) const { return layer->role() == role; }
};
// Every linear layer that may have an adapter, the vocabulary's head last, behind it those of a
// vision tower: all but the head of a
// sequence classifier, which trains whole beside the low-rank matrices.
std::vector<Target> linear_layers(nn::Module& model);

// A module that an adapter may bring whole: the embeddings, or a head of its own.
struct WholeModule {
  std::string path;  // "model.embed_tokens"
  nn::Parameter* weight;
  nn::WeightVersions* versions;
};
std::vector<WholeModule> whole_modules(nn::Module& model);

// The rows of the embeddings.
int64_t table_rows(nn::Module& model);

// Whether the vocabulary's head reads the embeddings' weight.
bool is_tied(nn::Module& model);

// The weight of a sequence classifier's head; null in a language model.
nn::Parameter* score_weight(nn::Module& model);
// It trains beside an adapter, where there is one.
void train_score(nn::Module& model);

// Metadata of an adapter's file (BaseFormat).
inline constexpr const char *kBaseDtype = "base_dtype", *kBaseStorage = "base_storage";

// Throws ConfigError for what no adapter of these targets can be: DoRA of a mixture or of the head,
// an adapter of some experts alone, or of a head that ranks divide.
void check_targets(const std::vector<Target>& targets, nn::Module& model, const LoraConfig& config);
// And for what no fresh one can be: with dropout on a mixture, a tower or the head, or of a head
// that trains whole.
void check_fresh(const std::vector<Target>& targets, const std::vector<WholeModule>& whole,
                 const LoraConfig& config);

// Freezes the model and gives the targets low-rank matrices without values, of the ranks and scales
// of `sizes`, one a target, or all of those of the config. Dropout is not that of routers and
// experts, which drop nothing.
struct LoraSize {
  int64_t rank;
  double scale;
};
void attach(const std::vector<Target>& targets, nn::Module& model, const LoraConfig& config,
            const std::vector<LoraSize>& sizes = {});

std::string last_part(const std::string& path);

// The layers that `names` select, as in LoraConfig::target_modules. Throws ConfigError as add_lora.
std::vector<Target> choose_targets(nn::Module& model, const std::vector<std::string>& names);
// The modules that they select, as in LoraConfig::modules_to_save. Those of a tied model's head and
// embeddings are one. Throws ConfigError as add_lora.
std::vector<WholeModule> choose_whole(nn::Module& model, const std::vector<std::string>& names);

// The weights of the modules that `names` select, as in LoraConfig::modules_to_save. Throws
// ConfigError as add_lora.
std::vector<std::string> saved_weights(nn::Module& model, const std::vector<std::string>& names);

// Makes these rows train, which begin as the base model's. Throws ConfigError that begins with
// `where`, the key or file, for a module or id that the model does not have, one that the adapter
// brings whole, a head that is tied and embeddings that ranks divide.
void add_token_rows(nn::Module& model, const std::vector<TrainedTokens>& tokens,
                    const std::string& where);

// True for the name of a matrix, magnitude or row of an adapter.
bool is_of_adapter(const std::string& name);

// LoraConfig::target_modules that mean just these layers: ends of paths where all that end so are
// among them, and paths.
std::vector<std::string> names_of_targets(nn::Module& model, const std::vector<Target>& targets);

// Ranks and scales of fresh adapters, one a target. Throws ConfigError as add_lora.
std::vector<LoraSize> fresh_sizes(const std::vector<Target>& targets, const LoraConfig& config);

}  // namespace temper::models
