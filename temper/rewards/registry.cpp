#include <utility>

#include "temper/base/error.h"
#include "temper/rewards/command.h"
#include "temper/rewards/reward.h"

namespace temper::rewards {

Registry<MakeReward>& registry() {
  static Registry<MakeReward> table("reward");
  return table;
}

void register_reward(RewardEntry entry) { registry().add(std::move(entry)); }

std::unique_ptr<Reward> make_reward(const RewardSection& section) {
  if (!section.command.empty()) return std::make_unique<CommandReward>(section);
  if (section.model)
    return registry().find("model", "rewards")(section);  // rl/rollout/model_reward.h
  const std::string& name = section.reward.empty() ? section.name : section.reward;
  for (const auto& [ending, program] : {std::pair(".py", "python3"), std::pair(".sh", "sh")})
    check<ConfigError>(!name.ends_with(ending), "rewards: `", name,
                       "` is no built-in reward; of a program write rewards=[{command: [", program,
                       ", ", name, "]}]");
  return registry().find(name, "rewards")(section);
}

}  // namespace temper::rewards
