// The tokens after a prompt while turns and what answers them are added.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "temper/generate/request.h"
#include "temper/rl/episode.h"
#include "temper/text/chat/dialogue.h"

namespace temper::rl {

class GrowingCompletion {
 public:
  explicit GrowingCompletion(size_t prompt_tokens = 0)
      : prompt_(prompt_tokens), base_(prompt_tokens) {}

  const CompletionTokens& tokens() const { return completion_; }
  int64_t length() const { return static_cast<int64_t>(completion_.tokens.size()); }

  // Adds a turn of the policy. trains: false where another completion has it to train on; it is
  // context here.
  void add_turn(const generate::Completion& turn, bool trains = true);
  // Adds what answers the last turn: it follows the first tokens of the prompt and of what followed
  // it, in a branch not all. images: among its tokens.
  void add_answer(const Dialogue::Continuation& next, const ImageSpans& images = {});

 private:
  size_t prompt_;
  CompletionTokens completion_;
  // For each token of the context from `base_` on its place in the completion. The tokens before
  // `base_` are the prompt's.
  std::vector<int64_t> place_;
  size_t base_;
};

}  // namespace temper::rl
