// Rollout files name images by paths from where the file lies: those of a repeated step, in another
// directory, are compared as if they lay where the run's do.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

namespace temper::cli {

// What a run's images were when it read them: digests (SHA-256) by path, as its manifest has them.
using ReadImages = std::map<std::string, std::set<std::string>>;

// A rollout file's lines with each image named from `directory` instead of its own. Images that the
// run keeps beside the file keep their names.
std::string named_from(const std::string& path, const std::string& directory);

// Whether `again`, a repeated step's file, has the SHA-256 `digest` once its images are named from
// one of `directories`, or, where rows were moved since, as `recorded` names them, the run's own
// file ("": it is gone): by its name for an image of these bytes, which `read` says; for one that
// is not there, of this file name.
bool is_recorded_rollout(const std::string& again, const std::string& digest,
                         const std::vector<std::string>& directories, const std::string& recorded,
                         const ReadImages& read);

}  // namespace temper::cli
