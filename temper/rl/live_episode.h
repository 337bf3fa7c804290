// An episode while it is sampled: its conversation, and its completion so far.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "temper/base/error.h"
#include "temper/data/prompt_row.h"
#include "temper/env/config.h"
#include "temper/env/environment.h"
#include "temper/generate/request.h"
#include "temper/rl/episode.h"
#include "temper/text/dialogue.h"

namespace temper::rl {

// What the environment adds makes the row's prompt longer than data.max_length, and data.overlong
// is drop or error.
struct PromptTooLong : DataError {
  using DataError::DataError;
};

// The template that writes the turns of the row's episodes; null: there is none, and texts are
// concatenated.
const ChatTemplate* episode_template(const data::PromptFormat& format, const data::PromptRow& row);

class LiveEpisode {
 public:
  // The row's prompt with what the environment adds to it: messages, and tools beside the row's. A
  // row of text or ids has no messages: where nothing is added its prompt is what it is. Throws
  // PromptTooLong, and DataError for what cannot be rendered or has ids that are not the model's.
  LiveEpisode(const data::PromptFormat& format, const data::PromptRow& row,
              const env::Observation& first);

  const std::vector<int32_t>& prompt() const { return prompt_; }
  const CompletionTokens& completion() const { return completion_; }
  // All tokens that the next turn follows.
  const std::vector<int32_t>& context() const { return dialogue_->tokens(); }
  int64_t length() const { return static_cast<int64_t>(completion_.tokens.size()); }
  // Of the whole completion, without special tokens; the last turn's cut at a stop text.
  const std::string& text() const { return text_; }

  // Adds what the policy sampled; gives what it says. `ended`: its last token is an end token.
  env::Turn add_turn(const generate::Completion& turn, bool ended, env::CallFormat format);
  // Adds what answers the last turn, unless that has more tokens than `most`: false. Throws
  // DataError as the constructor.
  bool add_answer(const Json& messages, int64_t most);

 private:
  void check_ids(const std::vector<int32_t>& tokens) const;

  std::shared_ptr<const Tokenizer> tokenizer_;
  int64_t vocabulary_;
  std::vector<int32_t> prompt_;
  std::optional<Dialogue> dialogue_;
  CompletionTokens completion_;
  // Of the tokens that the next turn follows, from `base_` on, their places in the completion. What
  // stands before is the prompt's.
  std::vector<int64_t> place_;
  size_t base_ = 0;
  std::vector<int32_t> turn_;  // the last one's tokens
  SpokenTurn spoken_;          // and what they say
  bool ended_ = false;
  std::string text_;
};

}  // namespace temper::rl
