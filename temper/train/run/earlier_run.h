// Checks of a run's output_dir, and its differences from the run that is there already.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "temper/train/config.h"
#include "temper/train/run/checkpoint/checkpoint.h"

namespace temper::train {

// The differences between the config and the one that an earlier run left in output_dir, as
// changed_keys() gives them, with commas between. `resume` and keys that Temper itself records do
// not count, and neither do a model.device and model.backend that stand for the same here, and keys
// that the earlier config does not have and that nobody set. Empty: nothing differs, or there is no
// earlier run.
std::string changed_settings(RunConfig& config);
// Why the run cannot go on from the checkpoint, which says what was trained: rows for other tokens
// (model.new_tokens). Empty: it can, or an earlier version wrote it.
std::string other_new_tokens(const RunConfig& config, const Checkpoint& checkpoint);

// What a run that starts over in output_dir would replace (final/, checkpoints, metrics, rollouts)
// is moved to a directory beside it, OUTPUT_DIR.old-1 or the next number (OUTPUT_DIR/old-1 where
// nothing can be moved out of it), whose path is returned; empty: there is nothing of worth. Under
// resume: never, or a checkpoint elsewhere, that is whatever an earlier run left, under auto the
// models that it trained, as a run that left none is often killed and begun again. What this run
// reads stays. Throws ConfigError where the files cannot be moved (all of them are then where they
// were), or where there is a final/ that no run left.
std::string move_earlier_run(RunConfig& config);
// What that would move.
std::vector<std::filesystem::path> earlier_files(RunConfig& config);
// The path DIRECTORY.KIND-N with the first N that is free, beside the directory itself.
std::string free_name_beside(const std::string& directory, const std::string& kind);

// Throws ConfigError where output_dir is the directory of a model or adapter that the run reads
// (the files of the run would lie among those of the model), or where anything that the run reads
// lies in what it will replace there.
void check_separate_output(RunConfig& config);

}  // namespace temper::train
