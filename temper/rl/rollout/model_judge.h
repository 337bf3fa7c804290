// A model directory as a judge (rewards/judge.h): it answers in this process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "temper/generate/engine.h"
#include "temper/rewards/judge.h"
#include "temper/text/chat/chat_template.h"
#include "temper/text/tokenizer/tokenizer.h"

namespace temper::rl {

// A question is the user's message; without a chat template it is text that the model continues.
// `rewards` has it as "judge".
class ModelJudge : public rewards::Judge {
 public:
  // Reads no weights: they are read for the first question. Throws ConfigError where the directory
  // is no language model with a tokenizer.
  explicit ModelJudge(const rewards::RewardSection& section);

 protected:
  void ask(const std::vector<std::string>& questions, const Take& take) override;

 private:
  std::vector<int32_t> tokens_of(const std::string& question) const;

  const std::string directory_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::shared_ptr<const ChatTemplate> chat_;  // null: there is none
  std::unique_ptr<models::CausalLM> model_;
  std::unique_ptr<generate::Engine> engine_;
};

}  // namespace temper::rl
