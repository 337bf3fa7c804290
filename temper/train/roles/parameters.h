// The parameters that an optimizer updates, and how a config chooses some of them by name.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "temper/nn/module.h"
#include "temper/train/config.h"

namespace temper::train {

struct NamedParameter {
  std::string name;  // "model.layers.0.self_attn.q_proj.weight"
  nn::Parameter* parameter;
  nn::Role role() const { return parameter->owner().role(); }
  double rate_scale = 1;                    // times the step's learning rate
  std::optional<double> weight_decay = {};  // none: the optimizer's, on two dimensions or more
};
std::vector<NamedParameter> trainable_parameters(nn::Module& model);

// Gives each parameter the rate and decay of the first of `groups` that it matches; a rate is
// relative to `learning_rate`, of the whole section. `where` ("run.yaml:3: optimizer.groups")
// begins the message of a ConfigError: a pattern that matches nothing.
void apply_groups(const std::vector<ParameterGroup>& groups, double learning_rate,
                  std::vector<NamedParameter>& parameters, const std::string& where);

// Parameters that match one of the patterns do not train. Throws ConfigError, beginning with
// `where`, for a pattern that matches none of those that would train, and where none is left.
void freeze_parameters(nn::Module& model, const std::vector<std::string>& patterns,
                       const std::string& where);

// LoRA+ (Hayou et al., arXiv 2402.12354): adapters' B matrices learn at `ratio` times the rate;
// of DoRA the magnitudes too, as with PEFT.
void scale_lora_b(std::vector<NamedParameter>& parameters, double ratio);

}  // namespace temper::train
