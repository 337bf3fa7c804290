// The tokenizer that a GGUF file holds, as the files that Hugging Face's has: the inverse of
// gguf_tokenizer.h. What GGUF does not hold, such as a normalizer (NFC) or tokens that take spaces
// beside them along, is lost.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "temper/base/json.h"
#include "temper/io/gguf.h"

namespace temper {

// Whether the file holds one.
bool has_gguf_tokenizer(const GgufFile& file);

// tokenizer.json. Byte-level BPE ("gpt2") is cut as tokenizer.ggml.pre says; of BPE over characters
// with byte fallback the merges are made of the scores ("llama") as transformers does, or are the
// file's ("gemma4"). Throws DataError that begins with `where` and names the key.
std::string gguf_tokenizer_json(const GgufFile& file, const std::string& where);

// tokenizer_config.json: the special tokens, and the chat templates where there are several.
Json gguf_tokenizer_config(const GgufFile& file, const std::string& where);
// chat_template.jinja; nullopt: the file has none, or several.
std::optional<std::string> gguf_chat_template(const GgufFile& file);

// The ids of tokens that end a text, that of the tokenizer first.
std::vector<int32_t> gguf_end_ids(const GgufFile& file);
// The value of tokenizer.ggml.NAME_token_id.
std::optional<int32_t> gguf_token_id(const GgufFile& file, const std::string& name);

}  // namespace temper
