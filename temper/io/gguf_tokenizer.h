// A model directory's tokenizer and chat template as llama.cpp reads them from a GGUF file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "temper/io/gguf.h"

namespace temper {

// Values from config.json and generation_config.json; the tokenizer's own files take precedence.
struct GgufVocabulary {
  // rows of the embedding: later tokens are left out, missing ones are written as unused
  int64_t size = 0;
  std::optional<int32_t> bos, pad;
  std::vector<int32_t> eos;
  // llama.cpp's name of BPE over characters with byte fallback: "llama", or "gemma4", which has the
  // merges themselves.
  std::string character_model = "llama";
};

struct GgufTokenizer {
  GgufKeys keys;                   // `tokenizer.*`
  std::vector<std::string> notes;  // where llama.cpp will cut some texts differently
};

// Byte-level BPE with one of the pre-tokenizers that llama.cpp knows ("gpt2"), or BPE over
// characters with byte fallback as SentencePiece has it ("llama", scores from the merges' ranks, or
// "gemma4", the merges);
// "none" for a directory without a tokenizer, with the ids of special tokens alone. What llama.cpp
// has no form for (another pre-tokenizer, normalizer or model) is a DataError that names it.
// `adapter`: a directory whose own chat template is written, where it has one; empty: none.
GgufTokenizer gguf_tokenizer(const std::string& model_dir, const GgufVocabulary& vocabulary,
                             const std::string& adapter = "");

}  // namespace temper
