// Models from and to Hugging Face directories.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "temper/io/safetensors.h"
#include "temper/models/model.h"

namespace temper::models {

// The model of a directory, in float32; or with the weights of its products kept in bfloat16, which
// halves their memory and lets them be read but not trained. What the file holds in the dtype asked
// for stays mapped from it, other tensors are converted. Tensors that are missing, left over or of
// a wrong shape are all named in one ConfigError. Throws ConfigError or DataError.
std::unique_ptr<CausalLM> load_model(const std::string& directory,
                                     at::ScalarType dtype = at::kFloat);

// A model of random weights, as transformers initialises its family; the same seed gives the same
// bits everywhere.
std::unique_ptr<CausalLM> init_model(const HfConfig& config, uint64_t seed);
// Draws one parameter's initial value from (seed, name).
at::Tensor initial_value(const nn::Parameter& parameter, const std::string& name, uint64_t seed);

// model.safetensors (sharded where large) of the model's own parameters, adapters left out, in
// float32, bfloat16 or float16.
void save_weights(CausalLM& model, const std::string& directory, at::ScalarType dtype);

// Where a saved model's small files come from: config.json (or its directory), and the directory of
// the tokenizer's and generation's files ("" for none).
struct ModelFiles {
  std::string config, others;
};
// Writes config.json with the dtype as saved and, of a multimodal checkpoint, its text_config
// alone; copies the others.
void write_model_files(const ModelFiles& files, const std::string& directory, at::ScalarType dtype);

// eos ids of config.json and generation_config.json.
std::vector<int32_t> eos_ids(const std::string& directory, const HfConfig& config);

at::Tensor to_tensor(const TensorView& view,
                     at::ScalarType dtype);    // aliases the view where it can
TensorView to_view(const at::Tensor& tensor);  // contiguous CPU tensor; kept alive by the view

}  // namespace temper::models
