// Programs that a run asks: each is started, asked once and ended.
#pragma once

#include <memory>
#include <span>

#include "temper/check/check_list.h"
#include "temper/env/config.h"
#include "temper/rewards/reward.h"

namespace temper::checks {

// Asks one reward about completions. The first of `samples` is the plainest and must get a value;
// if all get the same value, that is a warning. Throws ConfigError, DataError.
Finding probe_reward(const rewards::RewardSection& section,
                     std::span<const rewards::Sample> samples);

// The reset of one episode, with a row's fields. A tool's program is found and not started.
Finding probe_environment(const env::EnvironmentSection& section, std::shared_ptr<const Json> row,
                          const std::string& where);

}  // namespace temper::checks
