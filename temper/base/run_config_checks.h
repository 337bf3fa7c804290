// What a config's keys must agree on; load_run_config calls these.
#pragma once

#include "temper/base/run_config.h"

namespace temper {

// Sets the defaults that depend on other keys.
void complete_run_config(RunConfig& config);

// Throws ConfigError where keys contradict each other, or the verb misses one.
void check_run_config(const RunConfig& config);

}  // namespace temper
