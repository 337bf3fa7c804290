// A GGUF file in place of a model's directory: `m.gguf/config.json` and the other small files of a
// directory are made from its keys (base/file.h), and read like those of a directory.
#pragma once

#include <string>

namespace temper::models {

// From now on the tokenizer and the chat templates of the GGUF file are those of `directory`.
// Throws ConfigError that begins with `where`, the key or flag, if the model is no GGUF file or the
// directory has no tokenizer.
void use_tokenizer(const std::string& model, const std::string& directory,
                   const std::string& where);

}  // namespace temper::models
