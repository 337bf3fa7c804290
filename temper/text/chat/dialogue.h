// A multi-turn conversation as token ids: the context of the policy's next turn, and the tokens
// between two of its turns.
//
// Sampled tokens are never tokenized again. They are followed by what the chat template renders
// after the assistant's words, the generation prompt included, without the end token if that was
// sampled. The template may render space in or around the words, or tool calls, differently: the
// sampled tokens are kept. Where it renders anything before the new turn differently than when that
// was sampled (Qwen3 drops earlier reasoning), the conversation continues in a branch from the
// point where they differ; the rewritten part is context that is not trained.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "temper/text/chat/chat_template.h"
#include "temper/text/chat/tool_calls.h"
#include "temper/text/tokenizer/tokenizer.h"

namespace temper {

class Dialogue {
 public:
  // Begins with messages rendered with the generation prompt; `prompt` is their tokens, which may
  // be others than the text's (cut, or of a text without a template). Without a template messages
  // are their contents, concatenated. kMarked: the texts of messages and tools, and of go_on's
  // answers, are Tokenizer::quoted(). Throws DataError.
  Dialogue(std::shared_ptr<const Tokenizer> tokenizer, std::shared_ptr<const ChatTemplate> chat,
           Json messages, Json tools, std::vector<int32_t> prompt,
           Tokenizer::Quotes quotes = Tokenizer::Quotes::kNone);

  // The context of the next turn.
  const std::vector<int32_t>& tokens() const { return tokens_; }

  struct Continuation {
    // number of tokens, of tokens() and the turn, that are kept; in a branch not all
    size_t kept;
    std::vector<int32_t> tokens;  // tokens that follow the kept ones
  };
  // Adds a turn of the policy, `ended` where its last token is an end token that it sampled, and
  // the messages that answer it. A template that knows no tool messages gets them as the user's.
  // Throws DataError where the template cannot render the conversation; it is then as before.
  Continuation go_on(std::span<const int32_t> turn, bool ended, const SpokenTurn& spoken,
                     const Json& answers);
  // How calls are written in this conversation.
  ToolCallFormat call_format() const { return format_; }

 private:
  struct Rendering {
    Json messages;
    std::string text, tail;  // tail: text after the assistant's words
    bool linear = false;     // text is rendered_, the words and the tail
  };
  std::string render(const Json& messages) const;
  std::vector<int32_t> encode(std::string_view text) const;
  std::string tail_of(const Json& answers) const;
  Rendering plain(const std::string& words, const Json& answers) const;
  Rendering structured(const SpokenTurn& spoken, const std::string& end, const Json& answers) const;
  Rendering best(const std::string& words, const SpokenTurn& spoken, const std::string& end,
                 const Json& answers) const;
  Continuation continue_line(std::span<const int32_t> turn, bool ended, const std::string& tail);
  Continuation branch(std::span<const int32_t> turn, const std::string& text);

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::shared_ptr<const ChatTemplate> chat_;  // null: none
  Tokenizer::Quotes quotes_;
  ToolCallFormat format_ = ToolCallFormat::kHermes;
  Json messages_, tools_;
  std::string rendered_;  // messages_ with the generation prompt
  std::vector<int32_t> tokens_;
  // Where turns of the policy begin: bytes of rendered_, and tokens.
  struct Begin {
    size_t byte, token;
  };
  std::vector<Begin> begins_;
};

// The tokens that the template writes after the assistant's words at the end of a conversation: the
// end of the turn and all that follows it ("<|im_end|>\n"). Throws DataError where they cannot be
// determined.
std::vector<int32_t> closing_tokens(const Tokenizer& tokenizer, const ChatTemplate& chat);

// The part of `tail`, the tokens that the template writes after a turn's words, that is still
// missing after the end token `end` was sampled: without that token and without white space before
// it.
std::vector<int32_t> after_end_token(const Tokenizer& tokenizer, std::vector<int32_t> tail,
                                     int32_t end);

// The messages' contents, concatenated. Throws DataError for one that is not text.
std::string joined_contents(const Json& messages);

}  // namespace temper
