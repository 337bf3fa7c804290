// Which of llama.cpp's tokenizers a tokenizer.json is, and the other way around.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "temper/base/json.h"

namespace temper {

struct GgufSplit {
  bool byte_level = false;   // true: "gpt2"; false: "llama"
  std::string pre;           // value of tokenizer.ggml.pre
  bool space_first = false;  // "llama": a space is put before a text
  std::string note;          // how llama.cpp will tokenize differently; empty: not at all
};

// `rest` is a tokenizer.json without vocabulary and merges. Throws DataError that names what
// llama.cpp has no form for.
GgufSplit gguf_split(const Json& rest, const std::string& where);

// The inverse for a byte-level tokenizer: what tokenizer.ggml.pre names.
struct GgufPretokenizer {
  Json json;                   // `pre_tokenizer` of a tokenizer.json
  bool ignore_merges = false;  // of its model
  bool adds_bos = false;       // where a file does not say
};
// Throws DataError that lists the known ones.
GgufPretokenizer gguf_pretokenizer(const std::string& pre, const std::string& where);

}  // namespace temper
