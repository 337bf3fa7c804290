// Checks of a run's output_dir, and its differences from the run that is there already.
#pragma once

#include <string>

#include "temper/train/config.h"

namespace temper::train {

// The differences between the config and the one that an earlier run left in output_dir, as
// changed_keys() gives them, with commas between. `resume` and keys that Temper itself records do
// not count, and neither do a model.device and model.backend that stand for the same here, and keys
// that the earlier config does not have and that nobody set. Empty: nothing differs, or there is no
// earlier run.
std::string changed_settings(RunConfig& config);

// Throws ConfigError where output_dir is the directory of a model or adapter that the run reads
// (the files of the run would lie among those of the model), or where anything that the run reads
// lies in what it will replace there.
void check_separate_output(RunConfig& config);

}  // namespace temper::train
