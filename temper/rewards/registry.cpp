#include <utility>

#include "temper/base/error.h"
#include "temper/rewards/builtin.h"
#include "temper/rewards/command.h"

namespace temper::rewards {
namespace {

Registry<MakeReward>& table() {
  static Registry<MakeReward> rewards(
      "reward",
      {
          {"gsm8k", make_gsm8k,
           "1 where the completion's final number is that of the row's `answer`"},
          {"math", make_math,
           "1 where the \\boxed answer equals the row's `answer`: expressions by their values, "
           "lists, "
           "sets, intervals, matrices, equations part by part"},
          {"exact", make_exact,
           "1 where the completion is the row's `answer`, but for surrounding space"},
          {"regex", make_regex, "1 where `pattern` is found in the completion"},
          {"format", make_format,
           "1 where the completion is <think>...</think><answer>...</answer> and nothing else"},
          {"length", make_length,
           "the completion's length as a share of rollout.max_new_tokens, negative: a penalty"},
          {"repetition", make_repetition,
           "the share of the completion's word trigrams that occurred before, negative: a penalty"},
          {"json", make_json, "1 where the completion is one JSON value, also in a ``` block"},
      });
  return rewards;
}

}  // namespace

const std::list<RewardEntry>& registry() { return table().list(); }

void register_reward(RewardEntry entry) { table().add(std::move(entry)); }

std::unique_ptr<Reward> make_reward(const RewardSection& section) {
  if (!section.command.empty()) return std::make_unique<CommandReward>(section);
  if (section.model) return table().find("model", "rewards")(section);  // rl/rollout/model_reward.h
  const std::string& name = section.reward.empty() ? section.name : section.reward;
  for (const auto& [ending, program] : {std::pair(".py", "python3"), std::pair(".sh", "sh")})
    check<ConfigError>(!name.ends_with(ending), "rewards: `", name,
                       "` is no built-in reward; of a program write rewards=[{command: [", program,
                       ", ", name, "]}]");
  return table().find(name, "rewards")(section);
}

}  // namespace temper::rewards
