// What a run's output_dir may be, and what differs from the run that is there already.
#pragma once

#include <string>

#include "temper/train/config.h"

namespace temper::train {

// What differs between the config and the one that an earlier run left in output_dir, as
// changed_keys() says it, with commas between. `resume` and what Temper itself records do not
// count, and neither does a model.backend of auto in place of the backend that auto stands for.
// Empty: nothing differs, or there is no earlier run.
std::string changed_settings(RunConfig& config);

// Throws ConfigError where output_dir is the directory of a model or adapter that the run reads:
// the files of the run would lie among those of the model.
void check_separate_output(const RunConfig& config);

}  // namespace temper::train
