// A reward model as a reward: its scalar at the last token of prompt and completion. In a
// conversation that is the last token that the chat template writes, as in the model's training
// (preference/sides.h): what the template writes after a sampled end token is appended.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "temper/models/model.h"
#include "temper/rewards/reward.h"
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
  void check_tokens(const Tokenizer* tokenizer, int64_t vocabulary) const override;

 private:
  const std::string directory_;
  std::unique_ptr<models::ScalarModel> model_;
};

// Throws ConfigError for a reward model whose tokens are not the policy's: its tokenizer's, or
// where one of them has none, as many as `vocabulary`.
void check_reward_models(std::span<const rewards::RewardSection> sections,
                         const Tokenizer* tokenizer, int64_t vocabulary);

}  // namespace temper::rl
