// The weights of a run's best evaluation (hooks.h, keep_best): OUTPUT_DIR/best, and
// OUTPUT_DIR/best-NAME of trainables beside the policy.
#pragma once

#include <string>

#include "temper/base/json.h"

namespace temper::train {

// The file in best/ that says of which evaluation its weights are: KeepBest's state. final/, a
// copy, has none.
inline constexpr const char* kBestRecord = "best.json";

// Whether the run still has the best weights up to that checkpoint of it.
bool has_best_of(const std::string& run, const std::string& checkpoint);
// Copies them to another run's directory, where `run` has them.
void copy_best(const std::string& run, const std::string& to);
// Whether OUTPUT_DIR has the best weights up to the checkpoint, which may be another run's: then
// they are copied from it, if it has them.
bool take_best(const std::string& checkpoint, const std::string& output_dir);

}  // namespace temper::train
