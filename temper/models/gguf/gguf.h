// Models as llama.cpp's GGUF files. Reading them: gguf_config.h, gguf_parameters.h, gguf_files.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "temper/io/gguf.h"
#include "temper/models/gguf/gguf_form.h"
#include "temper/models/model.h"

namespace temper::models {

// What a GGUF file says of a model directory besides its tensors.
struct GgufHeader {
  GgufForm form;
  GgufKeys keys;                   // all of the file's
  std::vector<std::string> notes;  // where llama.cpp will do otherwise, for the user
};

// The header for the configuration and tokenizer of `directory`, with the chat template of the
// adapter that is merged (a directory, or empty) where that has its own; matrices will be in
// `dtype` (float32, bfloat16 or float16). `untied`: the head has a weight of its own, whatever the
// configuration says. Reads no weights. Throws ConfigError or DataError that
// names what llama.cpp has no form for.
GgufHeader gguf_header(const std::string& directory, at::ScalarType dtype,
                       const std::string& adapter = "", bool untied = false);

// The value of a parameter to be written, float32: its own, or with an adapter merged.
using ValueOf = std::function<at::Tensor(nn::Parameter&)>;
at::Tensor own_value(nn::Parameter& parameter);

// The model's tensors under llama.cpp's names, adapters left out; tensors of one dimension are
// float32. Each is made when it is written. Throws RunError, then, for values beyond the dtype's
// range.
std::vector<std::pair<std::string, TensorView>> gguf_tensors(CausalLM& model, const GgufForm& form,
                                                             at::ScalarType dtype,
                                                             const ValueOf& value = own_value);

// Writes the file, reads it back and compares every key and every byte. Throws RunError.
void save_gguf(CausalLM& model, const GgufHeader& header, const std::string& path,
               at::ScalarType dtype, const ValueOf& value = own_value);

}  // namespace temper::models
