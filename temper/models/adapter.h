// LoRA adapters as PEFT keeps them: adapter_config.json and adapter_model.safetensors.
#pragma once

#include <string>
#include <vector>

#include "temper/models/model.h"

namespace temper::models {

struct LoraConfig {
  int64_t rank = 16;
  double alpha = 32, dropout = 0;
  bool rank_stabilized = false;  // scale alpha / sqrt(rank) (Kalajdzievski, arXiv 2312.03732)
  std::vector<std::string> target_modules{
      "all-linear"};  // names of linear layers (their last part or whole path)
  double scale() const;
};

// Adds fresh adapters: A as PEFT draws it, B zero. Every base weight is frozen. Throws ConfigError
// for a target that names no linear layer, listing those that there are.
void add_lora(CausalLM& model, const LoraConfig& config, uint64_t seed);

// Reads a PEFT directory and adds its adapter to the model. Throws ConfigError.
LoraConfig load_adapter(CausalLM& model, const std::string& directory);
// Writes one. `base` is named as the base model's path.
void save_adapter(CausalLM& model, const LoraConfig& config, const std::string& base,
                  const std::string& directory);

// Copies the model's adapter as it is now; Context::adapter = the index that this returns computes
// with the copy for as long as the model lives. The copy does not train, is not saved and has no
// dropout: it is what reinforcement learning calls the reference where an adapter goes on.
int freeze_adapter_copy(CausalLM& model);

// Adds every adapter to its base weight; the model then has none.
void merge_adapters(CausalLM& model);

}  // namespace temper::models
