// The special tokens of a model directory, and where they stand around text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "temper/base/json.h"
#include "temper/text/tokenizer/tokenizer.h"

namespace temper {

// Whether this is a regular file.
bool is_model_file(const std::filesystem::path& path);

// The JSON object in a file of a model directory; an empty object where there is no such file.
// Throws DataError for a file that holds anything else.
Json read_model_file(const std::string& model_dir, const char* name);

// The texts of the special tokens by their names, as chat templates see them: bos_token, eos_token
// and every other `*_token` of tokenizer_config.json, in older directories those of
// special_tokens_map.json. An object; throws DataError.
Json special_tokens(const std::string& model_dir);

// The token that ends a text without a chat template: tokenizer_config.json's eos_token, else the
// first eos_token_id of generation_config.json; none where both are silent. Throws DataError.
std::optional<int32_t> end_token(const std::string& model_dir, const Tokenizer& tokenizer);

// Ids of a text on its own: with the special tokens that the tokenizer's post-processor adds, but
// not a second time those that the text already begins or ends with. Of a text of more than `limit`
// ids those beyond the limit may be missing, here and below.
std::vector<int32_t> encode_text(const Tokenizer& tokenizer, std::string_view text,
                                 size_t limit = SIZE_MAX,
                                 Tokenizer::Quotes quotes = Tokenizer::Quotes::kNone);

// Ids of a text that another follows: only what the post-processor puts before a text is added.
std::vector<int32_t> encode_beginning(const Tokenizer& tokenizer, std::string_view text,
                                      size_t limit = SIZE_MAX,
                                      Tokenizer::Quotes quotes = Tokenizer::Quotes::kNone);

// The value; with kMarked, all its strings are Tokenizer::quoted().
Json quoted(const Tokenizer& tokenizer, Tokenizer::Quotes quotes, Json value);

}  // namespace temper
