// Where a run's files of train.offload are.
#pragma once

#include <string>

#include "temper/train/config.h"

namespace temper::train {

// train.offload_dir, or output_dir.
std::string offload_directory(const RunConfig& config);
// Throws ConfigError unless train.offload_dir, where it is given, is a directory that can be
// written to.
void check_offload_dir(const RunConfig& config);

}  // namespace temper::train
