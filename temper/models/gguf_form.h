// What of a model's configuration llama.cpp's architectures can compute, as the keys of a GGUF
// file.
#pragma once

#include <string>
#include <vector>

#include "temper/io/gguf.h"
#include "temper/models/hf_config.h"

namespace temper::models {

struct GgufForm {
  GgufKeys keys;  // of the architecture, without `general.` and `tokenizer.`
  std::string architecture;
  int64_t vocab_size = 0;
  // How tensors differ from those of the checkpoint. Rows of q and k lie in the order of pairs that
  // are rotated together (2i, 2i + 1), not half a head apart.
  bool interleaved = false;
  int64_t num_heads = 0, num_kv_heads = 0;
  bool norm_plus_one = false;  // norms hold 1 + weight
  bool sandwich = false;       // norms after attention and MLP as well
  // What queries are multiplied by, where the architecture's own scale is another than the model's:
  // in the norm of q where there is one, else in its projection.
  double query_scale = 1;
  bool scale_query_norm = false;
  std::vector<float> rope_factors;  // rope_freqs: frequencies are divided by them; empty: none
};

// Throws ConfigError that names the key for a family or option that llama.cpp computes otherwise or
// not at all.
GgufForm gguf_form(const HfConfig& config);

}  // namespace temper::models
