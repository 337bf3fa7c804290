// A model family: how its config.json is read and its body built, its class names and its tensors'
// names. Each family's file registers one at its end.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "temper/base/registry.h"
#include "temper/io/safetensors.h"
#include "temper/models/backbone.h"
#include "temper/models/gguf/gguf_architecture.h"

namespace temper::models {

// Tensors in the order of a file.
using NamedTensors = std::vector<std::pair<std::string, TensorView>>;

struct DecoderConfig;
// A body of DecoderBlocks (decoder_block.cpp), as the config describes them.
std::unique_ptr<Backbone> make_decoder(const DecoderConfig& config);

struct Family {
  const char* model_type;  // of config.json
  // One line, for `temper list models`: models, a colon, what is particular about them.
  const char* help;
  const char* paper = "";  // as in Registry::Entry
  // Reads config.json. Where the file is silent, the values are those of transformers' config
  // class. Throws ConfigError.
  DecoderConfig (*config)(const HfConfig&);
  std::unique_ptr<Backbone> (*make)(const DecoderConfig&) = &make_decoder;
  // Class names that go into config.json's `architectures`; null: what the config says stays.
  const char* causal_lm = nullptr;
  const char* sequence_classification = nullptr;
  // Of a multimodal config causal_lm is the language model alone, without what wraps it.
  bool causal_lm_is_text_part = false;
  // Renames a checkpoint's tensors, once they are opened (CheckpointFormat), to the model's own
  // names and drops what it has no use for; null: they are the model's own.
  void (*sanitize)(TensorMap& tensors, const HfConfig& config) = nullptr;
  // The inverse of `sanitize`, for writing: renames the model's tensors to those of a checkpoint
  // that transformers reads; null: its names are the model's own. May join several tensors into one
  // (TensorView::make).
  void (*restore)(NamedTensors& tensors) = nullptr;
  // The one of CheckpointFormat::of_families that its files may be in; null: none.
  const char* checkpoint_format = nullptr;
  std::optional<GgufArchitecture> gguf = {};  // none: llama.cpp does not compute this family
};

// The families of this program and those that were registered, by their model_type.
const Registry<Family>& families();
// Throws ConfigError for a model_type that is taken. Before any model is made.
void register_family(const Family& family);
// A family's file ends with a global of this type.
struct RegisteredFamily {
  explicit RegisteredFamily(const Family& family) { register_family(family); }
};
// Throws ConfigError for a model_type that is unknown, naming those that are known.
const Family& family_of(const HfConfig& config);
// The body of a model without values.
std::unique_ptr<Backbone> make_body(const HfConfig& config);

// Applies Family::restore of the family whose body it is, where it has one.
void restore_names(const Backbone& body, NamedTensors& tensors);

// For Family::sanitize: the language model of a checkpoint that also sees images, without its
// wrapping. Such a model is written without it, too.
void unwrap_language_model(TensorMap& tensors, const HfConfig& config);

}  // namespace temper::models
