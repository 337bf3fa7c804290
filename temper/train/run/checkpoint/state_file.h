// state.json of a checkpoint: the step, values of the trainer and the task, a hash of each other
// file, and one of itself. A directory without it is no checkpoint: it is written last and removed
// first.
#pragma once

#include <cstddef>
#include <string>

#include "temper/base/json.h"

namespace temper::train {

inline constexpr size_t kLongestStep = 15;  // digits of a step's number

// Keys of marks that are true, or missing: the run is complete; its weights and moments were
// removed; the step after it gave no finite gradient.
inline constexpr const char *kComplete = "complete", *kRecordAlone = "record_alone",
                            *kSetAside = "no_finite_gradient";

// The values, without the hash of the file. Throws DataError where the directory is no checkpoint,
// or the file is damaged or was edited.
Json read_state(const std::string& directory);
// Writes them with their hash. Throws RunError.
void write_state(const std::string& directory, Json state);
// The same, with the hashes of the directory's other files, which have just been written and are
// still in the page cache. `threads` hash.
void write_state_with_hashes(const std::string& directory, Json state, int threads);
// Sets a key to true.
void mark_state(const std::string& directory, const char* key);

}  // namespace temper::train
