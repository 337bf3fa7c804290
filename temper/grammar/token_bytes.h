// Tokens as the bytes that they add to a text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "temper/text/tokenizer/tokenizer.h"

namespace temper::grammar {

struct TokenBytes {
  static constexpr int32_t kNoOther = -1, kNothing = -2;
  // The bytes that each token of the model adds; empty: none (special tokens, ids without a token).
  std::vector<std::string> bytes;
  // A decoder may cut a space off the beginning of a text, so that a token's bytes are others where
  // it is the first. Of such tokens: one that adds, later in a text, what this one adds first;
  // kNoOther where there is none, kNothing where it adds nothing. Of any other token: itself.
  // Empty: there are no such tokens.
  std::vector<int32_t> first_as;
};

// Throws ConfigError for a tokenizer whose tokens add no bytes of their own.
TokenBytes token_bytes(const Tokenizer& tokenizer, int64_t vocabulary);

}  // namespace temper::grammar
