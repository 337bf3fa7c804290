// Models to Hugging Face directories.
#pragma once

#include <cstdint>
#include <string>

#include "temper/base/json.h"
#include "temper/models/model.h"

namespace temper::models {

// model.safetensors (sharded where large, unless it must be one file) of the model's own
// parameters, adapters left out, in float32, bfloat16 or float16, under the names that transformers
// reads (Family::restore). Of a model that ranks share out all of them call this, those that do not
// write with an empty directory; here and in save_adapter.
void save_weights(Model& model, const std::string& directory, at::ScalarType dtype,
                  bool one_file = false);
// The same of modules that are no model of a family, under their own names.
void save_parameters(nn::Module& module, const std::string& directory, at::ScalarType dtype);

// Where a saved model's small files come from: config.json (or its directory), and the directory of
// the tokenizer's and generation's files ("" for none).
// whole: they are of a model that reads images, all of which is saved (Model::whole).
struct ModelFiles {
  std::string config, others;
  bool whole = false;
};
// What the saved model is to transformers: AutoModelForCausalLM's, or
// AutoModelForSequenceClassification's with one label.
enum class HeadKind { kVocabulary, kScalar };

// The configuration of weights that were made of those of a model directory, or of what its
// config.json (given alone) describes: of a multimodal model that of its text model.
Json written_config(const std::string& path, bool untied = false);

// Writes config.json with the dtype as saved and, of a multimodal checkpoint, its text_config
// alone; copies the others. untied: the weights written have a head of their own, whatever the
// config that is read says.
void write_model_files(const ModelFiles& files, const std::string& directory, at::ScalarType dtype,
                       HeadKind head = HeadKind::kVocabulary, bool untied = false);

// The tokenizer and chat templates of a model directory, as far as there are any.
void copy_tokenizer_files(const std::string& from, const std::string& directory);

// The size in bytes of the files that copy_tokenizer_files copies.
int64_t tokenizer_file_bytes(const std::string& directory);

}  // namespace temper::models
