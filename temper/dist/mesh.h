// The axes along which the ranks of a run share its work (MeshSection), and their groups.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "temper/dist/config.h"
#include "temper/dist/group.h"

namespace temper::dist {

class PeerWatch;

struct Mesh {
  // One axis: ranks with the same weights and rows of their own. The group outlives the mesh.
  Mesh(Group& rows);  // NOLINT: implicit
  Mesh() : Mesh(alone()) {}
  // Ranks that compute the same rows, each with its part of every layer.
  static Mesh tensor_parallel(std::shared_ptr<Group> group);

  // Each is the group that this rank is in.
  std::shared_ptr<Group> world;          // all ranks
  std::shared_ptr<Group> data_parallel;  // those with rows of their own: Axis::own_rows
  std::shared_ptr<Group> tokens;         // those with tokens of their own: Axis::own_tokens
  std::shared_ptr<Group> data;           // those with the same part of the weights
  std::shared_ptr<Group> fsdp;           // those that share out the weights
  std::shared_ptr<Group> context;        // those that divide the tokens of the same rows
  std::shared_ptr<Group> tensor;         // those that compute the same tokens: Axis::divides_work
  std::shared_ptr<Group> same_rows;      // both: Axis::shares_rows
  std::shared_ptr<Group> model;          // those that have the whole model together: divides_model
  std::shared_ptr<PeerWatch> watch;      // heartbeats of the ranks of `world`; null: one rank
  // What `tensor` divides: each rank has some of the experts and the rest whole, not a part of
  // every layer.
  bool by_expert = false;

  // Ranks over which layers are divided, so that their sums have another order than on one.
  int layer_parts() const { return by_expert ? 1 : tensor->size(); }

 private:
  explicit Mesh(std::shared_ptr<Group> group);
};

// The mesh of the environment's ranks. Ranks listen on the address by which their host reaches
// MASTER_ADDR, or on GLOO_SOCKET_IFNAME's. Throws ConfigError for an environment that is half set
// and for axes that do not multiply to the ranks (beginning with `where`: "run.yaml:3: mesh");
// RunError when the ranks do not find each other within TEMPER_TIMEOUT_SECONDS (120), or when
// `stop` says that the run shall end while it waits.
Mesh join(const MeshSection& section, const std::string& where = "mesh",
          const std::function<bool()>& stop = {});

}  // namespace temper::dist
