// What of a model's configuration llama.cpp's architectures can compute, as the keys of a GGUF
// file.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "temper/io/gguf.h"
#include "temper/models/files/hf_config.h"
#include "temper/models/gguf/gguf_architecture.h"

namespace temper::models {

// A tensor that is made of a parameter of a block. One parameter may be made into several.
struct GgufPart {
  using Function = std::function<at::Tensor(const at::Tensor& value)>;
  std::string own, gguf;  // their names in the block: "mlp.gate.weight", "ffn_gate_inp.weight"
  // Takes and moves rows (entries of the first dimension) of a tensor of any dtype, or, `elements`,
  // also elements within them; null: it has them as they are.
  Function arrange = nullptr;
  bool elements = false;
  // What becomes of each float32 value, and its inverse; null: nothing.
  Function apply = nullptr, undo = nullptr;
};

struct GgufForm {
  GgufKeys keys;  // of the architecture, without `general.` and `tokenizer.`
  std::string architecture;
  std::vector<std::string> notes;  // where llama.cpp will do otherwise, for the user
  int64_t vocab_size = 0;
  std::string character_model;  // GgufVocabulary
  // How tensors differ from those of the checkpoint. Rows of q and k lie in the order of pairs that
  // are rotated together (2i, 2i + 1), not half a head apart.
  bool interleaved = false;
  int64_t num_heads = 0, num_kv_heads = 0;
  bool post_norm = false;  // GgufArchitecture
  std::span<const GgufName> names;
  std::vector<GgufPart> parts;     // before `names`
  bool repeats_embedding = false;  // as output.weight
  bool interleaved_unit = false;   // ops::GatedUnit of the experts
  // What queries are multiplied by, where the architecture's own scale is another than the model's:
  // in the norm of q where there is one, else in its projection.
  double query_scale = 1;
  bool scale_query_norm = false;
  // What frequencies are divided by, rope_freqs, or rope_factors_short and rope_factors_long;
  // empty: there is none.
  std::vector<float> rope_factors, short_factors, long_factors;

  // "ARCHITECTURE.key", which is replaced where it is there.
  void set(std::string_view key, GgufValue value);
  void set_number(std::string_view key, int64_t value);
  void set_real(std::string_view key, double value);
  // Throws ConfigError: what was found for `key` is not what the architecture computes.
  [[noreturn]] void refuse(const HfConfig& source, const char* key, const std::string& found) const;
};

// Throws ConfigError that names the key for a family or option that llama.cpp computes otherwise or
// not at all.
GgufForm gguf_form(const HfConfig& config);

// Parts of it: rotary positions, and the experts of a mixture.
void add_gguf_rope(const HfConfig& source, const GgufArchitecture& architecture,
                   const DecoderConfig& config, GgufForm& form);
void add_gguf_experts(const HfConfig& source, const GgufArchitecture& architecture,
                      const DecoderConfig& config, GgufForm& form);

}  // namespace temper::models
