// Reads the JSON of a tokenizer.json. The vocabulary and the merges, nearly all of the file, go
// straight into their tables; the rest becomes a small document.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

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

}  // namespace temper
