// A run's ranks: how they find each other, and their checks and sums.
#pragma once

#include "temper/dist/world.h"
#include "temper/train/roles/roles.h"
#include "temper/train/run/run_directory.h"

namespace temper::train {

// The ranks that the environment names, as the sections `mesh` and `roles` divide them.
struct RunRanks {
  std::unique_ptr<dist::World> world;
  bool trains = true;  // else this rank has roles of its own (workers/rank_server.h)
  dist::Mesh mesh;     // mesh of the ranks that train; on any other rank, a mesh of itself alone
};
// Throws ConfigError where config and ranks do not fit (dist/mesh.h), RunError where ranks do not
// come or were started with different programs or configs.
RunRanks join_ranks(RunConfig& config, const RunHost& host);
// As join_ranks(), where all ranks train.
dist::Mesh join_mesh(RunConfig& config, const RunHost& host);

// Throws ConfigError where the ranks of mesh.tensor, mesh.expert or roles.tensor cannot divide the
// policy's model.
void check_divisible(RunConfig& config);

// The name under which a rank with roles of its own publishes its address (World::tell).
std::string serving_name(int rank);

// Sums each gradient over the ranks that hold the same part of its parameter, each of which then
// has the gradient of the whole step. FSDP's own sums were made in the backward pass.
void reduce_gradients(const dist::Mesh& mesh, const Trainables& trainables);

}  // namespace temper::train
