// llama.cpp's kinds of tokens, tokenizer.ggml.token_type.
#pragma once

#include <cstdint>

namespace temper {

enum class GgufTokenType : int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,  // found in text only where special tokens are parsed, never printed
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

// Tokens that end a text have one of these names each: tokenizer.ggml.NAME_token_id.
constexpr const char* kGgufEndTokens[] = {"eos", "eot", "eom"};

constexpr const char* kGgufSpaceMark = "▁";  // SentencePiece's mark of a space

}  // namespace temper
