// Rollout files name images by paths from where the file lies: those of a repeated step, in another
// directory, are compared as if they lay where the run's do.
#pragma once

#include <string>
#include <vector>

namespace temper::cli {

// A rollout file's lines with each image named from `directory` instead of its own. Images that the
// run keeps beside the file keep their names.
std::string named_from(const std::string& path, const std::string& directory);

// Whether `again`, a repeated step's file, has the SHA-256 `digest` once its images are named from
// one of `directories`, or as `recorded`, the run's own file ("": it is gone), names images of the
// same file names: rows may have been moved since.
bool is_recorded_rollout(const std::string& again, const std::string& digest,
                         const std::vector<std::string>& directories, const std::string& recorded);

}  // namespace temper::cli
