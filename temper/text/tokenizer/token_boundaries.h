// Where the bytes of a text fall among its tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "temper/text/tokenizer/tokenizer.h"

namespace temper {

// Finds token boundaries for byte positions asked in ascending order. `tokens` must be
// tokenizer.encode_first(text, limit, quotes); tokenizer, text and tokens must outlive the object.
class TokenBoundaries {
 public:
  TokenBoundaries(const Tokenizer& tokenizer, std::string_view text,
                  const std::vector<int32_t>& tokens, size_t limit = SIZE_MAX,
                  Tokenizer::Quotes quotes = Tokenizer::Quotes::kNone)
      : tokenizer_(tokenizer),
        text_(text),
        tokens_(tokens),
        quotes_(quotes),
        cut_(tokens.size() >= limit) {}

  // The number of tokens that begin before this byte, which is the index of the first that begins
  // at or after it. Exact, also when a token spans the byte. Throws DataError when the tokens
  // around the byte do not decode to the text there.
  size_t tokens_before(size_t byte);

 private:
  const Tokenizer& tokenizer_;
  std::string_view text_;
  const std::vector<int32_t>& tokens_;
  const Tokenizer::Quotes quotes_;
  const bool cut_;  // the text may go on behind the tokens
  // The last place known where a token ends exactly at a byte.
  size_t known_byte_ = 0, known_token_ = 0;
};

}  // namespace temper
