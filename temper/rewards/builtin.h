// Factories of the built-in rewards; each stands in a file of its own. All but length need text.
#pragma once

#include <memory>

#include "temper/rewards/reward.h"

namespace temper::rewards {

std::unique_ptr<Reward> make_gsm8k(const RewardSection&);
std::unique_ptr<Reward> make_math(const RewardSection&);
std::unique_ptr<Reward> make_exact(const RewardSection&);
std::unique_ptr<Reward> make_regex(const RewardSection&);
std::unique_ptr<Reward> make_format(const RewardSection&);
std::unique_ptr<Reward> make_length(const RewardSection&);
std::unique_ptr<Reward> make_repetition(const RewardSection&);
std::unique_ptr<Reward> make_json(const RewardSection&);

}  // namespace temper::rewards
