// Adapters beside a model's own, on the same weights: copies that stay as they are, or train alone.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "temper/models/model.h"

namespace temper::models {

// Copies an adapter (0: the model's own) as it is now; Context::adapter = the index that this
// returns computes with the copy until it is removed. The copy does not train, is not saved and has
// no dropout: it is what reinforcement learning calls the reference where an adapter goes on.
int freeze_adapter_copy(nn::Module& model, int from = 0);
// Gives a copy's memory back; nothing computes with it any more. Its index may be given again.
void remove_adapter_copy(nn::Module& model, int index);

// A second adapter that trains on the same frozen base: such a copy, whose parameters by name
// ("model.layers.0.self_attn.q_proj.lora_A.weight") are an optimizer's.
struct TrainedCopy {
  int index = 0;  // Context::adapter
  std::vector<std::pair<std::string, nn::Parameter*>> parameters;
};
TrainedCopy train_adapter_copy(nn::Module& model, int from = 0);

// A scalar model of the body of `model` with its adapter `index` merged, in float32; what has no
// adapter shares memory with the model. The head is left to be set.
std::unique_ptr<ScalarModel> merged_scalar_model(CausalLM& model, const HfConfig& config,
                                                 int index);

// Reads a PEFT directory as an adapter beside others that never changes: Context::adapter = the
// index that this returns computes with it. The model has no adapter of its own, before and after.
int load_frozen_adapter(CausalLM& model, const std::string& directory);

}  // namespace temper::models
