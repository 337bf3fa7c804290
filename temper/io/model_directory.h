// The files of a Hugging Face model directory beside its weights.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "temper/base/json.h"

namespace temper {

// Throws ConfigError that says why `path` is no model directory: absent, a file, without
// config.json.
void check_model_directory(const std::string& path);

// The token ids that end a text: generation_config.json's `eos_token_id`, then those of `config`
// (the contents of config.json) that are not among them. Either may hold one id, a list or null.
// Throws DataError.
std::vector<int32_t> read_eos_token_ids(const std::string& directory, const Json& config);

// Copies the files of the tokenizer, chat templates and generation, those that there are, but not
// config.json. Throws DataError or RunError.
void copy_model_files(const std::string& from, const std::string& to);

}  // namespace temper
