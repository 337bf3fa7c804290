// What llama.cpp's architecture for a family computes; of a config that asks for something else,
// `export --format gguf` says which key it is (gguf_form.h). A file's keys become a config again
// (gguf_config.h).
#pragma once

#include <cstdint>
#include <span>

#include "temper/base/json.h"

namespace temper::models {

class GgufSource;
class HfConfig;
struct DecoderConfig;
struct GgufForm;

// A module of a block, or one of its parameters, and llama.cpp's name of it.
struct GgufName {
  const char *own, *gguf;
};

struct GgufArchitecture {
  const char* name;                       // general.architecture
  const char* character_model = "llama";  // GgufVocabulary
  bool interleaved = false;               // rotates pairs (2i, 2i + 1)
  bool rope_factors = false;              // reads rope_freqs
  bool longrope = false;                  // reads rope_factors_short and rope_factors_long
  bool proportional = false;              // as rope_freqs, which `add` sets
  bool gelu = false;
  bool output_bias = false;  // of attention
  bool mlp_bias = false;
  bool own_head = true;        // reads output.weight
  bool needs_head = false;     // even where it is the embedding
  bool own_head_size = true;   // heads of another size than hidden_size / heads
  bool fewer_kv_heads = true;  // than heads
  bool scale_key = false;      // reads attention.scale
  bool own_scale = false;      // scores are scaled as the family's, or as `add` says
  // post_attention_layernorm is its post_attention_norm, not its ffn_norm.
  bool post_norm = false;
  bool soft_caps = false;  // always caps scores and logits; others cap logits where a key says so
  bool windows = false;
  int64_t window_period = 0;     // every layer has a window but each window_period-th; 0: by key
  int64_t window_layers = 0;     // windows are of models of so many layers, and only of those
  bool window_optional = false;  // no layer has one where the file names no window
  bool window_rotates = false;   // where layers have windows, the others have no positions
  bool plain_in_window = false;  // yarn is of layers without a window alone
  int64_t rotation_period = 0;   // each rotation_period-th layer has no positions
  int64_t exception_layers = 0;  // of a model of so many layers, queries are scaled by
                                 // hidden_size / heads
  enum class Weights { kNormalized, kPlain, kByKey };  // of the experts that a token goes to
  Weights weights = Weights::kNormalized;
  bool sigmoids = false;                 // of a router's logits, as in DeepSeek-V3
  bool dense_first = false;              // the first layers may have an MLP in place of experts
  std::span<const GgufName> names = {};  // the family's own, beside those of every decoder
  // Adds what is the family's own, or refuses it.
  void (*add)(const HfConfig& source, const DecoderConfig& config, GgufForm& form) = nullptr;

  // For reading: where families share a `name`, a file belongs to the one whose key `given` it has
  // (above 0), else to the one without `given`; reads is false: to no file.
  const char* given = nullptr;
  bool reads = true;
  // Adds to the config.json that is made of a file what is the family's own.
  void (*read)(const GgufSource& source, Json& config) = nullptr;
};

}  // namespace temper::models
