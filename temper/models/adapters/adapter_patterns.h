// Ranks and scales of single layers, as rank_pattern and alpha_pattern of PEFT's files say them.
#pragma once

#include <string>
#include <vector>

#include "temper/models/adapters/adapter_config.h"

namespace temper::models {

// Ranks and scales by the file's patterns, one a target. Throws ConfigError of the directory.
std::vector<LoraSize> sizes_of(const std::vector<Target>& targets, const AdapterConfig& config,
                               const std::string& directory);

// The layers of an adapter as PEFT's patterns see them, by the paths that its file is to have.
struct SizedLayer {
  std::string path;
  LoraSize size;
};
// The config with patterns by which a file of these layers says their sizes: its own, or, where
// they say others by these paths, one for each layer.
LoraConfig with_patterns_of(LoraConfig config, const std::vector<SizedLayer>& layers);

// The file's experts were single ones (join_single_adapters): their gate_up_proj has twice the rank
// and the scale of the others. Throws ConfigError where patterns are of such experts, whose names
// behind `prefix` are among `names`.
void join_gate_and_up(AdapterConfig& config, const std::vector<std::string>& names,
                      const std::string& directory);

// Whether a target's weight is one of the target_parameters, or of a module with such a name.
bool names_parameter(const std::vector<std::string>& target_parameters, const std::string& path);

}  // namespace temper::models
