// LoRA adapters as PEFT keeps them: a directory of adapter_config.json and
// adapter_model.safetensors (or .bin). W' = W + scale * B A, with scale alpha / r, or alpha /
// sqrt(r) where use_rslora is set (arXiv 2312.03732).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "temper/io/tensor_view.h"

namespace temper {

// The defaults are PEFT's, which leaves keys out that it does not know of yet.
struct LoraAdapterConfig {
  int64_t rank = 8;
  double alpha = 8;
  double dropout = 0;  // [0, 1)
  bool use_rslora = false;
  // Names that end modules' paths or are them; one string where the file holds a pattern or
  // "all-linear".
  std::vector<std::string> target_modules;
  std::string base_model;  // where the base model was; empty: not said
};

struct LoraMatrices {
  TensorView a;  // [rank, in]
  TensorView b;  // [out, rank]
};

struct LoraAdapter {
  LoraAdapterConfig config;
  std::map<std::string, LoraMatrices> modules;  // "model.layers.0.self_attn.q_proj" -> its matrices
};

// Which modules are adapted is read off the tensors. Throws ConfigError for a directory that is no
// adapter and for whatever its config asks for that would not be computed (DoRA, biases, rank
// patterns, ...), by its key; DataError for tensors that are not LoRA's, lack their partner or do
// not have rank `r`.
LoraAdapter read_lora_adapter(const std::string& directory);

// Creates the directory where needed. Throws RunError.
void write_lora_adapter(const std::string& directory, const LoraAdapter& adapter);

}  // namespace temper
