// The text of a completion while it grows: where a stop text ends it, and what can be shown
// already.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "temper/text/tokenizer/tokenizer.h"

namespace temper::generate {

// The text of the tokens without special ones, cut before the first stop text that ends with the
// token number `min_tokens` or later.
std::string text_of(const Tokenizer& tokenizer, std::span<const int32_t> tokens,
                    std::span<const std::string> stop, int64_t min_tokens = 0);

class TextStream {
 public:
  // The tokenizer and the stop texts, none of them empty, outlive this.
  TextStream(const Tokenizer& tokenizer, std::span<const std::string> stop)
      : decoder_(tokenizer), stop_(stop) {}

  // Appends a token. True: the text holds a stop text now; may_stop false: none is looked for that
  // ends with this token.
  bool push(int32_t token, bool may_stop = true);
  // The beginning of the text that no later token takes back: without what a stop text that is not
  // whole yet may cut.
  std::string_view shown() const;

 private:
  StreamDecoder decoder_;
  std::span<const std::string> stop_;
  std::string text_;
  size_t cut_ = std::string::npos;  // where the first stop text begins
};

}  // namespace temper::generate
