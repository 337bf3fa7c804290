// A reward of one's own, beside the built-in ones:
//   own_reward grpo run.yaml 'rewards=[{name: gsm8k}, {name: distinct, weight: 0.1}]'
//   own_reward eval --model DIR --input prompts.jsonl --reward distinct
#include <algorithm>
#include <memory>
#include <set>

#include "temper/cli/verbs.h"
#include "temper/rewards/reward.h"

// The share of a completion's tokens that differ from each other: low where a model repeats itself.
class Distinct : public temper::rewards::SimpleReward {
 public:
  double score(const temper::rewards::Sample& sample) const override {
    const auto& tokens = sample.completion_tokens;
    const std::set<int32_t> distinct(tokens.begin(), tokens.end());
    return static_cast<double>(distinct.size()) /
           static_cast<double>(std::max<size_t>(1, tokens.size()));
  }
  bool needs_text() const override { return false; }  // works for models without a tokenizer
};

int main(int argc, char** argv) {
  temper::rewards::register_reward(
      {.name = "distinct",
       .value = [](const temper::rewards::RewardSection&)
           -> std::unique_ptr<temper::rewards::Reward> { return std::make_unique<Distinct>(); },
       .help = "the share of the completion's tokens that differ from each other"});
  return temper::cli::run({argv + 1, argv + argc});
}
