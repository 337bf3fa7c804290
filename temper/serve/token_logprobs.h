// Log-probabilities of tokens in OpenAI's two forms.
#pragma once

#include <optional>
#include <string>

#include "temper/serve/reply_json.h"
#include "temper/serve/request.h"
#include "temper/serve/sampler_loop.h"
#include "temper/text/tokenizer/tokenizer.h"

namespace temper::serve {

// Texts of one choice's tokens, in their order.
class TokenTexts {
 public:
  // tokenizer: null: there are no texts, and tokens go by their ids, as where `as_ids` asks for it.
  TokenTexts(const Tokenizer* tokenizer, bool as_ids);

  // What the token adds to the text; of a special token its name.
  std::string next(int32_t id);
  // What it would add alone.
  std::string alone(int32_t id) const;
  // The token's bytes, as a list of numbers; null without texts.
  ReplyJson bytes(int32_t id) const;
  // Where the text of the next token begins, in characters; moves on by that text.
  int64_t offset_before(const std::string& text);

 private:
  const Tokenizer* tokenizer_;  // null: ids
  std::optional<StreamDecoder> decoder_;
  int64_t characters_ = 0;
};

// {"content": [{"token", "logprob", "bytes", "top_logprobs"}]}
ReplyJson chat_logprobs(TokenTexts& texts, const Piece& piece);
// {"tokens", "token_logprobs", "top_logprobs", "text_offset"}; first_unknown: the first token has
// no log-probability, as nothing stands before it.
ReplyJson completion_logprobs(TokenTexts& texts, const Piece& piece, bool with_top,
                              bool first_unknown);

}  // namespace temper::serve
