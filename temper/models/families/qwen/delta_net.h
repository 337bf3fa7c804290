// What families with gated delta nets share: Qwen3-Next, Qwen 3.5.
#pragma once

#include "temper/models/gguf/gguf_form.h"
#include "temper/models/sparse_mlp.h"

namespace temper::models {

// The heads of a config's delta nets. Throws ConfigError.
ops::DeltaRuleSpec read_delta_rule(const HfConfig& config);
// Attention, rotary embedding and layers with a state as these families have them, from the config.
// joined: nn::DeltaNetConfig.
void set_delta_net(const HfConfig& config, DecoderConfig& c, bool joined);
// Experts beside one that every token goes through, whose output has a gate. `sparse` says the
// rest.
void set_shared_experts(const HfConfig& config, DecoderConfig& c, SparseConfig sparse);
// For Family::sanitize and Family::restore of a mixture of experts.
void read_delta_net_experts(TensorMap& tensors, const HfConfig& config);
void write_delta_net_experts(NamedTensors& tensors);
// For Family::sanitize: the language model alone, without the layers (`mtp`) that draft tokens.
void unwrap_and_drop_drafts(TensorMap& tensors, const HfConfig& config);

// llama.cpp's architecture of this name, which Qwen3-Next (its input layers are joined) and Qwen
// 3.5 each have of their own.
GgufArchitecture delta_net_gguf(const char* name, bool joined);

}  // namespace temper::models
