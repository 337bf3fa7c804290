// What a family of models tells the program, at the foot of its file: how to make its body, what
// its classes are called, how its weights are named and how they split.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "temper/base/registry.h"
#include "temper/io/safetensors.h"
#include "temper/models/backbone.h"

namespace temper::models {

// How a tensor is divided among the ranks of tensor parallelism (Shoeybi et al., arXiv 1909.08053).
enum class Split {
  kColumns,     // a linear layer's outputs: rows of its weight [out, in], and its bias
  kRows,        // a linear layer's inputs: columns of its weight; its bias stays whole
  kVocabulary,  // rows of an embedding or of the vocabulary head
};
// Parameters whose names match the pattern (`*` is any run of characters) split so; what no rule
// names is whole on every rank.
struct ShardRule {
  const char* pattern;
  Split split;
};

struct Family {
  const char* model_type;  // of config.json
  std::unique_ptr<Backbone> (*make)(const HfConfig&);
  const char* help;  // one line, for `temper list models`
  // Class names that go into config.json's `architectures`; null: what the config says stays.
  const char* causal_lm = nullptr;
  const char* sequence_classification = nullptr;
  // Renames a checkpoint's tensors to the model's own names and drops what it has no use for; null:
  // they are the model's own.
  void (*sanitize)(TensorMap& tensors, const HfConfig& config) = nullptr;
  std::span<const ShardRule> shards = {};
};

// The families of this program and those that were registered, by their model_type.
const Registry<Family>& families();
// Throws ConfigError for a model_type that is taken. Before any model is made.
void register_family(Family family);
// Throws ConfigError for a model_type that is unknown, naming those that are known.
const Family& family_of(const HfConfig& config);

// For Family::sanitize: the language model of a checkpoint that also sees images, without its
// wrapping.
void unwrap_language_model(TensorMap& tensors, const HfConfig& config);

// How the parameter splits; nullopt: it is whole on every rank.
std::optional<Split> split_of(const Family& family, const std::string& parameter);

// One of each file of this folder.
Family llama_family();
Family qwen2_family();
Family qwen3_family();
Family gemma_family();
Family gemma2_family();
Family gemma3_text_family();

}  // namespace temper::models
