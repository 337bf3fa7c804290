// A run's ranks: how they find each other, and what they do together in a step.
#pragma once

#include "temper/dist/mesh.h"
#include "temper/train/roles.h"
#include "temper/train/run_directory.h"

namespace temper::train {

// The mesh that the config asks for, of the ranks that the environment names (dist/mesh.h). Throws
// RunError where they were started with different programs or configs.
dist::Mesh join_mesh(RunConfig& config, const RunHost& host);

// Sums each gradient over the ranks that hold the same part of its parameter, each of which then
// has the gradient of the whole step. FSDP's own sums were made in the backward pass.
void reduce_gradients(const dist::Mesh& mesh, const Trainables& trainables);

}  // namespace temper::train
