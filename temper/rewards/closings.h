// What a chat template writes behind a completion, which reward models read.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "temper/rewards/config.h"
#include "temper/text/chat/chat_template.h"
#include "temper/text/tokenizer/tokenizer.h"

namespace temper::rewards {

// The tokens that follow completions that ended by themselves (rewards::Sample::closing_tokens).
class Closings {
 public:
  // tokenizer: null where there is none. ends: the tokens at which sampling ends by itself. A
  // template for which they cannot be determined is an error only where a reward is a model.
  Closings(std::span<const RewardSection> sections, const Tokenizer* tokenizer,
           std::vector<int32_t> ends);
  // The tokens after this completion. chat: the template that wrote its prompt; null: the prompt is
  // no conversation. For one thread at a time. Throws DataError.
  std::vector<int32_t> after(std::span<const int32_t> completion, const ChatTemplate* chat);

 private:
  std::vector<int32_t> whole(const ChatTemplate& chat) const;

  const Tokenizer* tokenizer_;
  bool needed_;
  std::vector<int32_t> ends_;
  // tokens by template, the end token included
  std::map<const ChatTemplate*, std::vector<int32_t>> found_;
};

}  // namespace temper::rewards
