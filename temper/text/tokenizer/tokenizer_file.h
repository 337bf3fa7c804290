// Reads the JSON of a tokenizer.json. The vocabulary and the merges, nearly all of the file, go
// straight into their tables; the rest becomes a small document.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "temper/base/json.h"
#include "temper/text/tokenizer/bpe.h"
#include "temper/text/tokenizer/vocabulary.h"

namespace temper {

struct TokenizerFile {
  Json rest;  // everything but model.vocab and model.merges
  bool has_vocabulary = false, has_merges = false;
  Vocabulary vocabulary;
  MergeList merges;
};

// Throws DataError("WHERE: ...").
TokenizerFile parse_tokenizer_file(std::string_view text, const std::string& where);

// The text of a tokenizer.json, which was parsed before, with tokens behind its added ones, as the
// tokenizers library's add_tokens adds texts: ids from first_id on, found in normalized text, not
// special. All else stays byte for byte.
std::string with_added_tokens(std::string_view text, const std::vector<std::string>& tokens,
                              int32_t first_id);

}  // namespace temper
