// The manifest of a run that begins, or goes on from a checkpoint.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "temper/dist/mesh.h"
#include "temper/train/config.h"
#include "temper/train/manifest/manifest.h"
#include "temper/train/run/checkpoint/checkpoint.h"

namespace temper::train {

// Goes on with the manifest in the run's directory, or begins one where there is none of the steps
// before. `resumed`: the checkpoint, null for a fresh run; `own`: it is one of the directory;
// `inputs_changed`: since it was written. A manifest that is broken is warned of and replaced.
std::unique_ptr<Manifest> open_manifest(RunConfig& config, const dist::Mesh& mesh,
                                        const Checkpoint* resumed, bool own, bool inputs_changed,
                                        const std::function<void(const std::string&)>& warn);

}  // namespace temper::train
