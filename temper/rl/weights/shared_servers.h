// The servers of a run of several ranks (rollout.server): all ranks ask them for completions, and
// rank 0 alone has them load weights, for itself and for whichever rank asks it to.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "temper/dist/mesh.h"
#include "temper/generate/remote/server_pool.h"
#include "temper/rl/config.h"
#include "temper/train/roles/policy.h"

namespace temper::rl {

class SharedServers {
 public:
  // On all ranks of the mesh. Throws ConfigError, also for a server that answers and cannot serve
  // the run (Protocol::inspect), and RunError.
  SharedServers(const RlConfig& config, const train::Policy& policy, const dist::Mesh& mesh);
  ~SharedServers();  // stops the pool

  const std::shared_ptr<generate::remote::ServerPool>& pool() const { return pool_; }
  // Warnings about servers that are used nevertheless. On rank 0; to be printed once the run has
  // begun.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  class Loading;
  std::vector<std::string> warnings_;
  std::shared_ptr<generate::remote::ServerPool> pool_;
  // answers the other ranks; null except on rank 0 of several
  std::unique_ptr<Loading> loading_;
};

}  // namespace temper::rl
