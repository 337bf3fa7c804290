// The ranks with roles of their own, as the ranks that train see them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "temper/dist/roles.h"
#include "temper/dist/world.h"
#include "temper/generate/remote/server_pool.h"
#include "temper/train/messages.h"
#include "temper/train/ranks.h"
#include "temper/train/trainer.h"

namespace temper::workers {

// The most requests at once that each of `training` ranks may make to one rank with a role: for
// completions, and for reference log-probabilities.
size_t connections_of_each(size_t training);
inline constexpr size_t kMostScored = 4;
// How long a rank waits for another one's answer.
double longest_wait_seconds(const dist::MeshSection& mesh);

// Each rank that trains follows the heartbeats of each rank with a role, so that its end is noticed
// at once; ranks with roles notice when rank 0 is gone.
class RoleRanks {
 public:
  // Waits until `world` knows the addresses of the ranks with roles. training: the number of ranks
  // that train. timeout_seconds: of one request. heartbeat_timeout_seconds: a rank that sends no
  // heartbeat for so long is gone. Throws RunError.
  RoleRanks(const dist::RolesSection& roles, dist::World& world, size_t training,
            double timeout_seconds, double heartbeat_timeout_seconds);
  ~RoleRanks();  // without end() before, the ranks end with an error

  // Addresses of the ranks that answer for this role; empty if no rank has it.
  generate::remote::PoolOptions sampling() const { return pool_of(roles_.leaders(roles_.rollout)); }
  generate::remote::PoolOptions scoring() const {
    return pool_of(roles_.leaders(roles_.reference));
  }
  generate::remote::PoolOptions judging() const { return pool_of(roles_.reward); }
  // Addresses of all ranks that are sent the policy's weights, in the order of roles.rollout.
  generate::remote::PoolOptions weighted() const { return pool_of(roles_.rollout); }
  size_t connections() const { return connections_; }
  bool leads() const { return leads_; }  // this is rank 0

  // Calls gone(rank) for each lost rank: now for those that are lost already, for others later,
  // from another thread. For a rank that sends no heartbeat it is called again every half second,
  // as a request to it may have begun after the last call.
  void on_gone(std::function<void(int64_t rank)> gone);
  // Has the pool, whose servers are those of sampling() or scoring(), leave out each rank of `role`
  // that is lost, and each that holds its model together with a lost one.
  void watch(const std::shared_ptr<generate::remote::ServerPool>& pool,
             const std::vector<int64_t>& role);
  const dist::RolesSection& roles() const { return roles_; }
  // Ends the rank at `place` in roles.rollout, and those that hold a model together with it: nobody
  // asks them anything more.
  void drop(size_t place);
  // Warns of the ranks that were lost since the last call.
  void warn(train::Messages& messages);
  // Tells the ranks how the run has ended: they end in the same way.
  void end(const train::RunOutcome& outcome);

 private:
  struct Rank;
  generate::remote::PoolOptions pool_of(const std::vector<int64_t>& ranks) const;
  Rank& find(int64_t rank) const;
  void follow_heartbeats(Rank& rank);
  void watch_heartbeats();
  void tell_gone(const Rank& rank);

  const dist::RolesSection roles_;
  const bool leads_;
  const size_t connections_;
  const double timeout_seconds_, heartbeat_timeout_seconds_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::mutex mutex_;
  std::vector<std::function<void(int64_t)>> on_gone_;
  std::vector<std::string> gone_;  // lost ranks that warn() has not reported yet
  std::atomic<bool> ending_{false};
  std::condition_variable end_;
  std::thread heartbeats_;  // last: it uses the others
};

// The ranks with roles of the run; null where no rank has a role of its own.
std::unique_ptr<RoleRanks> find_role_ranks(const train::RunConfig& config,
                                           const train::RunRanks& ranks);

}  // namespace temper::workers
