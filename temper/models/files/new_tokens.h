// Tokens that a model has beyond those of its files (model.new_tokens).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "temper/models/files/checkpoint_tensors.h"

namespace temper::models {

// From now on the model of `directory` (a directory or a GGUF file) has these tokens behind its
// tokenizer's last id, wherever this process reads it: its tokenizer.json as transformers'
// add_tokens leaves it, the vocabulary of its config.json, and rows of embeddings and head, which
// are the mean of the rows of all earlier tokens, whether the files have rows to spare for them or
// not. They take the place of those of an earlier call; none: the model is that of its files.
// Throws ConfigError that begins with `where`, the key or file, for texts that are empty, named
// twice or tokens already, and for a model without tokenizer.json; DataError.
void use_new_tokens(const std::string& directory, const std::vector<std::string>& texts,
                    const std::string& where);
// Those that the directory has so.
std::vector<std::string> new_tokens_of(const std::string& directory);

// Metadata of an adapter's weights: a JSON list of the tokens that its base had beyond its files,
// and the rows of its tables with them.
inline constexpr const char *kNewTokens = "new_tokens", *kNewVocabulary = "vocabulary";
// Those of an adapter's directory. Throws DataError.
std::vector<std::string> adapter_new_tokens(const std::string& adapter);
// use_new_tokens() with those of the adapters that are to be on the model. Throws ConfigError
// naming two that do not agree.
void use_tokens_of_adapters(const std::string& model, const std::vector<std::string>& adapters);
// Throws ConfigError where the adapter's base had such tokens, and the model that it is for here
// has tables of another number of rows, or other tokens of its own beyond its files (none: those
// that the adapter was trained with may be in its files).
void check_new_tokens(const std::string& adapter, int64_t rows,
                      const std::vector<std::string>& of_model);
// The first token in which two lists of them differ, in words; "": none.
std::string first_difference_of_tokens(const std::vector<std::string>& found,
                                       const std::vector<std::string>& expected);

// The contents of a directory's file that new tokens change; nullopt: they leave it as it is.
std::optional<std::string> file_with_new_tokens(const std::string& directory,
                                                const std::string& name);
// Gives the tensors rows for the new tokens of their directory. Throws ConfigError where the model
// has other tables by token than embeddings and head.
void add_new_rows(CheckpointTensors& checkpoint);

}  // namespace temper::models
