// Programs that a run asks: each is started, asked once and ended.
#pragma once

#include <memory>
#include <span>

#include "temper/env/config.h"
#include "temper/plan/check_list.h"
#include "temper/rewards/reward.h"
#include "temper/text/tokenizer.h"

namespace temper::plan {

// One reward on one completion. Throws ConfigError, DataError.
// `samples`: completions of several kinds, the first of them the plainest, which must get a value;
// that all of them get the same is a warning.
Finding probe_reward(const rewards::RewardSection& section,
                     std::span<const rewards::Sample> samples);

// The reset of one episode, with a row's fields. A tool's program is found and not started.
Finding probe_environment(const env::EnvironmentSection& section, std::shared_ptr<const Json> row,
                          const std::string& where);

}  // namespace temper::plan
