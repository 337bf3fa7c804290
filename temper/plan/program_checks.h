// Programs and servers that a run asks: each is asked once; programs are started and ended.
#pragma once

#include <memory>

#include "temper/env/config.h"
#include "temper/generate/remote/config.h"
#include "temper/plan/check_list.h"
#include "temper/rewards/reward.h"
#include "temper/text/tokenizer.h"

namespace temper::plan {

// One reward on one completion. Throws ConfigError, DataError.
Finding probe_reward(const rewards::RewardSection& section, const rewards::Sample& sample);

// The reset of one episode, with a row's fields. A tool's program is found and not started.
Finding probe_environment(const env::EnvironmentSection& section, std::shared_ptr<const Json> row,
                          const std::string& where);

// Every server, for the name of its model, which is what a run asks first; for some seconds. One
// that answers is enough for a run. weights_dir: where the run writes weights for them. Throws
// ConfigError for urls that are none, and for a directory that cannot be written to.
Finding probe_servers(const generate::ServerSection& section, const std::string& weights_dir,
                      int64_t vocabulary);

}  // namespace temper::plan
