// LoRA and DoRA adapters: adding them to a model, what they are on, merging. adapter_files.h reads
// and writes them, adapter_copies.h is about others beside a model's own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "temper/models/adapters/lora_config.h"
#include "temper/nn/module.h"

namespace temper::models {

// Adds fresh adapters: A as PEFT draws it, B zero. all-linear means neither lm_head nor the layers
// of a vision tower, which are named where the model has taken it (Tower::projector_alone). An
// adapter of a head that is tied to the embeddings is the head's alone, as in PEFT. Every base
// weight is frozen but a ScalarModel's head, which trains beside the adapter. Throws ConfigError
// for a target that names no linear layer, listing those that there are, and for a pattern that
// fits none of the targets.
void add_lora(nn::Module& model, const LoraConfig& config, uint64_t seed);
// Its two steps. attach_lora: adds and freezes; neither the adapter has values then, nor need the
// model. init_lora: the values of all adapters of the model, A from the seed, B zero, and DoRA's
// magnitudes from the base weights, which have values.
void attach_lora(nn::Module& model, const LoraConfig& config);
void init_lora(nn::Module& model, uint64_t seed);

// Whether `names`, as LoraConfig::target_modules has them, are exactly the layers that have an
// adapter. Throws ConfigError as add_lora.
bool targets_are(nn::Module& model, const std::vector<std::string>& names);
// The same of LoraConfig::modules_to_save.
bool saved_modules_are(nn::Module& model, const std::vector<std::string>& names);

// The model has no adapter of its own any more; copies stay.
void remove_adapter(nn::Module& model);

// Whether the model's own adapter is on the vocabulary's head.
bool adapts_head(nn::Module& model);
// Throws ConfigError for an adapter on a head that ranks divide.
void check_head_is_whole(bool divided);
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
