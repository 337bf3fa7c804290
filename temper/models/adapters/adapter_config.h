// PEFT's files: adapter_config.json, its patterns of ranks and scales, and the names of tensors.
#pragma once

#include <string>
#include <vector>

#include "temper/io/tensor_view.h"
#include "temper/models/adapters/adapter_parts.h"

namespace temper::models {

struct AdapterConfig {
  LoraConfig lora;  // without target_modules and modules_to_save, which the tensors say
  std::vector<std::string> target_parameters, modules_to_save;
  // Rows of trainable_token_indices, in the file's order.
  std::vector<TrainedTokens> token_rows{};
  std::string body = "model.";  // what the file's names call it; a multimodal model's is longer
};

// Throws ConfigError that names the file and the key, for what the program does not compute, too.
AdapterConfig read_adapter_config(const std::string& directory);

// Throws ConfigError where the file has no tensor of a module that modules_to_save names; `names`
// are the tensors', without PEFT's prefix.
void check_saved_modules(const AdapterConfig& config, const std::vector<std::string>& names,
                         const std::string& directory);

// The names of an adapter's tensors.
inline const std::string kPrefix = "base_model.model.";
inline const std::string kScoreTensor = kPrefix + "score.weight";
inline const std::string kHeadTensor = kPrefix + "lm_head.weight";

inline std::string matrix_name(const Target& t, const char* matrix) {
  return kPrefix + t.path + "." + matrix + ".weight";
}
// PEFT leaves the parameter's own name out of the file.
inline std::string magnitude_name(const Target& t) {
  return kPrefix + t.path + ".lora_magnitude_vector";
}
inline std::string rows_name(const std::string& path) {
  return kPrefix + path + ".token_adapter.trainable_tokens_delta";
}
inline std::string rows_name(const WholeModule& m) { return rows_name(m.path); }
inline std::string whole_name(const WholeModule& m) { return kPrefix + m.path + ".weight"; }

// Takes the values of a file's token_rows and adds the rows to the model; which they are, sorted.
std::vector<TrainedTokens> take_token_rows(TensorMap& tensors, nn::Module& model,
                                           const AdapterConfig& config,
                                           const std::string& directory);

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
