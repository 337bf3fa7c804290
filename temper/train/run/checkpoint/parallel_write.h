// Ranks that share out trained weights write side by side into the same files of a checkpoint.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "temper/dist/mesh.h"
#include "temper/io/safetensors.h"
#include "temper/train/run/checkpoint/snapshot.h"

namespace temper::train {

// Does the work on every rank of the group. Where one fails, all throw a RunError "rank N: .." of
// the first that did.
void on_all(dist::Group& group, const std::function<void()>& work);

// Whether all ranks may write into files of the directory, which the first one has made: they see
// it, and hosts that share it see each other's writes.
bool may_write_together(const std::string& directory, dist::Group& group);

// Makes the files (tensors by the name of a file), on all ranks, and returns what writes this
// rank's part of each. `snapshot`: that keeps the part until it is written; null: it does not
// change until then.
std::function<void()> begin_parts(const std::string& directory,
                                  std::map<std::string, TensorMap> files, const dist::Mesh& mesh,
                                  Snapshot* snapshot);

}  // namespace temper::train
