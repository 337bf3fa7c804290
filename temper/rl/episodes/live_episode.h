// An episode while it is sampled: its conversation, and its completion so far.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "temper/base/error.h"
#include "temper/data/images/row_images.h"
#include "temper/data/rows/prompt_row.h"
#include "temper/env/config.h"
#include "temper/env/environment.h"
#include "temper/generate/request.h"
#include "temper/rl/episode.h"
#include "temper/rl/episodes/growing_completion.h"
#include "temper/text/chat/dialogue.h"

namespace temper::rl {

// Thrown where the environment's first observation makes the row's prompt longer than
// data.max_length, and data.overlong is drop or error, or an image would be cut.
struct PromptTooLong : DataError {
  using DataError::DataError;
};

// The template that writes the turns of the row's episodes; null: there is none, and texts are
// concatenated.
const ChatTemplate* episode_template(const data::PromptFormat& format, const data::PromptRow& row);

class LiveEpisode {
 public:
  // The prompt is the row's with the messages and tools that the environment's first observation
  // adds. A row of text or ids has no messages: it stays as it is where nothing is added. Throws
  // PromptTooLong, and DataError for what cannot be rendered or has ids that are not the model's.
  LiveEpisode(const data::PromptFormat& format, const data::PromptRow& row,
              const env::Observation& first);

  const std::vector<int32_t>& prompt() const { return prompt_; }
  const ImageSpans& prompt_images() const { return prompt_images_; }
  const CompletionTokens& completion() const { return completion_.tokens(); }
  // All tokens so far, which the next turn follows.
  const std::vector<int32_t>& context() const { return dialogue_->tokens(); }
  const ImageSpans& context_images() const { return context_images_; }
  int64_t length() const { return completion_.length(); }
  // The text of the whole completion, without special tokens; that of the last turn is cut at a
  // stop text.
  const std::string& text() const { return text_; }

  // Adds a turn that the policy sampled, and returns its text and calls. `ended`: its last token is
  // an end token.
  env::Turn add_turn(const generate::Completion& turn, bool ended, env::CallFormat format);
  // Adds the messages that answer the last turn; false: they have more tokens than `most`. Their
  // image parts have their own SOURCEs. Throws DataError as the constructor.
  bool add_answer(const Json& messages, int64_t most);

 private:
  Json place(Json messages);
  ImageSpans find_images(const std::vector<int32_t>& tokens) const;
  std::vector<int32_t> encode(std::string_view text) const;
  void check_ids(const std::vector<int32_t>& tokens) const;

  data::TextFormat sees_;     // how images are read
  data::RowImages images_;    // of all messages, in order
  ImageSpans prompt_images_;  // where they stand in the prompt, and in the context
  ImageSpans context_images_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  Tokenizer::Quotes quotes_;
  int64_t vocabulary_;
  std::vector<int32_t> prompt_;
  std::optional<Dialogue> dialogue_;
  GrowingCompletion completion_;
  std::vector<int32_t> turn_;  // the tokens of the last turn
  SpokenTurn spoken_;          // its text
  bool ended_ = false;
  std::string text_;
};

}  // namespace temper::rl
