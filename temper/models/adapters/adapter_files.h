// Adapters as PEFT keeps them: adapter_config.json and adapter_model.safetensors.
#pragma once

#include <string>

#include "temper/models/adapters/lora_config.h"
#include "temper/nn/module.h"

namespace temper::models {

// Reads a PEFT directory and adds its adapter to the model. Throws ConfigError. What the file does
// not say is what PEFT takes then (alpha 8). target_modules and modules_to_save are those of the
// tensors that it holds. A model that sees takes its tower where they are of the
// tower. Routers, experts and heads do not drop their inputs here, whatever the file's dropout. New
// tokens that it was trained with must be the model's (files/new_tokens.h).
LoraConfig load_adapter(nn::Module& model, const std::string& directory);
// Writes an adapter: the model's own, or a copy of it (Context::adapter). The base model, at the
// directory `base`, is recorded under its public_name() (load.h).
void save_adapter(nn::Module& model, const LoraConfig& config, const std::string& base,
                  const std::string& directory, int adapter = 0);

}  // namespace temper::models
