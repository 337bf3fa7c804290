// A reward model as a reward: its scalar at the last token of prompt and completion. In a
// conversation that is the last token that the chat template writes, as in the model's training
// (preference/sides.h): what the template writes after a sampled end token is appended.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "temper/models/model.h"
#include "temper/rewards/reward.h"
#include "temper/text/chat/chat_template.h"
#include "temper/text/tokenizer/tokenizer.h"

namespace temper::rl {

// The completions of one prompt are children of it in a forest. It reads token ids, so that what
// was sampled is never tokenized again. A model that sees gets the images; one of text alone does
// not get their tokens. `rewards` has it as "model".
class ModelReward : public rewards::Reward {
 public:
  // Throws ConfigError where the directory has no scalar head (score.weight).
  explicit ModelReward(const std::string& directory);

  std::vector<rewards::Verdict> judge(std::span<const rewards::Sample> samples) override;
  bool needs_text() const override { return false; }

 private:
  std::unique_ptr<models::ScalarModel> model_;
};

// The tokens that follow completions that ended by themselves (rewards::Sample::closing_tokens).
class Closings {
 public:
  // tokenizer: null where there is none. ends: the tokens at which sampling ends by itself. A
  // template for which they cannot be determined is an error only where a reward is a model.
  Closings(std::span<const rewards::RewardSection> sections, const Tokenizer* tokenizer,
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

// Throws ConfigError for a reward model whose tokens are not the policy's: its tokenizer's, or
// where one of them has none, as many as `vocabulary`.
void check_reward_models(std::span<const rewards::RewardSection> sections,
                         const Tokenizer* tokenizer, int64_t vocabulary);

}  // namespace temper::rl
