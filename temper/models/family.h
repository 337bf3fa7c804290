// A model family: reads its config.json, builds its body, and knows the names of its transformers
// classes and of its tensors. Each family's file registers one at its end.
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
  // One line for `temper list models`: the models, a colon, what is particular about them.
  const char* help;
  const char* paper = "";  // as in Registry::Entry
  // Reads config.json. Missing keys have the defaults of transformers' config class. Throws
  // ConfigError.
  DecoderConfig (*config)(const HfConfig&);
  std::unique_ptr<Backbone> (*make)(const DecoderConfig&) = &make_decoder;
  // Class names to write to `architectures` in config.json; null: keep those of the config.
  const char* causal_lm = nullptr;
  const char* sequence_classification = nullptr;
  // For families that are also read from a multimodal checkpoint: causal_lm is the class of the
  // language model alone, without the multimodal wrapper.
  bool causal_lm_is_text_part = false;
  // Renames a checkpoint's tensors to the model's own names and drops those that it does not need,
  // after quantized formats were opened (CheckpointFormat); null: the names are the same.
  void (*sanitize)(TensorMap& tensors, const HfConfig& config) = nullptr;
  // The inverse of `sanitize`, for saving: renames the model's tensors to those of a checkpoint
  // that transformers reads; null: the names are the same. May join several tensors into one
  // (TensorView::make).
  void (*restore)(NamedTensors& tensors) = nullptr;
  // The name of a CheckpointFormat with `of_families` that its files may use; null: none.
  const char* checkpoint_format = nullptr;
  std::optional<GgufArchitecture> gguf = {};  // nullopt: llama.cpp does not support this family
};

// All registered families, built-in and from outside, by model_type.
const Registry<Family>& families();
// Throws ConfigError if the model_type is taken. Call before any model is made.
void register_family(const Family& family);
// A family's file ends with a global of this type.
struct RegisteredFamily {
  explicit RegisteredFamily(const Family& family) { register_family(family); }
};
// Throws ConfigError for an unknown model_type, listing the known ones.
const Family& family_of(const HfConfig& config);
// The number of tokens of the model in a directory, which its config may leave to the family.
int64_t vocabulary_of(const std::string& directory);
// The body of a model, with uninitialized weights.
std::unique_ptr<Backbone> make_body(const HfConfig& config);

// Applies Family::restore of the body's family, if it has one.
void restore_names(const Backbone& body, NamedTensors& tensors);

// How files of a multimodal checkpoint may begin the names of its language model's tensors, which
// are `model.` and nothing in those of a language model alone.
struct LanguagePrefix {
  const char *body, *head;
};
inline constexpr LanguagePrefix kLanguagePrefixes[] = {{"model.language_model.", ""},
                                                       {"language_model.model.", "language_model."},
                                                       {"model.text_model.", ""}};

// For Family::sanitize: keeps the language model of a multimodal checkpoint and drops the rest.
// Such a model is also saved as a language model alone.
void unwrap_language_model(TensorMap& tensors, const HfConfig& config);

}  // namespace temper::models
