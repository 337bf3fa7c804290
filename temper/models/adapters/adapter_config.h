// adapter_config.json of a PEFT directory.
#pragma once

#include <string>
#include <vector>

#include "temper/models/adapters/adapter_parts.h"

namespace temper::models {

struct AdapterConfig {
  LoraConfig lora;  // without target_modules and modules_to_save, which the tensors say
  std::vector<std::string> target_parameters, modules_to_save;
  std::string body = "model.";  // what the file's names call it; a multimodal model's is longer
};

// Throws ConfigError that names the file and the key, for what the program does not compute, too.
AdapterConfig read_adapter_config(const std::string& directory);

// Throws ConfigError where the file has no tensor of a module that modules_to_save names; `names`
// are the tensors', without PEFT's prefix.
void check_saved_modules(const AdapterConfig& config, const std::vector<std::string>& names,
                         const std::string& directory);

}  // namespace temper::models
