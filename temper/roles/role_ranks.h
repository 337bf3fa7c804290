// The ranks with roles of their own, as those that train see them.
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

namespace temper::roles {

// How many requests for completions, and for the reference, each of so many ranks that train may
// make to one of the others at once.
size_t connections_of_each(size_t training);
inline constexpr size_t kMostScored = 4;
// How long a rank waits for another one's answer.
double longest_wait_seconds(const dist::MeshSection& mesh);

// Each rank that trains waits for the end of each of them, so that it is noticed at once; they
// notice when rank 0 is gone.
class RoleRanks {
 public:
  // Asks `world` where they are; waits for them. training: ranks that train. timeout_seconds: of
  // one request. Throws RunError.
  // heartbeat_timeout_seconds: a rank that sends none for so long is gone.
  RoleRanks(const dist::RolesSection& roles, dist::World& world, size_t training,
            double timeout_seconds, double heartbeat_timeout_seconds);
  ~RoleRanks();  // without end() before, they end with an error

  // Those of a role that are asked; none in the list: nobody has it.
  generate::remote::PoolOptions sampling() const { return pool_of(roles_.leaders(roles_.rollout)); }
  generate::remote::PoolOptions scoring() const {
    return pool_of(roles_.leaders(roles_.reference));
  }
  // All that sample with the policy's weights, in the order of roles.rollout.
  generate::remote::PoolOptions weighted() const { return pool_of(roles_.rollout); }
  size_t connections() const { return connections_; }
  bool leads() const { return leads_; }  // this is rank 0

  // Calls gone(rank) for each rank that is lost: at once for those that are already, later from
  // another thread; for one that sends no heartbeat again every half second, as a request may have
  // begun just after the call before.
  void on_gone(std::function<void(int64_t rank)> gone);
  // The pool's servers are those of sampling() or scoring(), and these the role's ranks: it leaves
  // out each that is gone, and each that holds its model together with one that is.
  void watch(const std::shared_ptr<generate::remote::ServerPool>& pool,
             const std::vector<int64_t>& role);
  const dist::RolesSection& roles() const { return roles_; }
  // Ends one of them, that of the place in roles.rollout, and those that hold a model together with
  // it: nobody asks them anything more.
  void drop(size_t place);
  // Says which are gone since the last call.
  void warn(train::Messages& messages);
  // The run has ended so: they end as it did.
  void end(const train::RunOutcome& outcome);

 private:
  struct Rank;
  generate::remote::PoolOptions pool_of(const std::vector<int64_t>& ranks) const;
  Rank& find(int64_t rank) const;
  void attend(Rank& rank);
  void watch_heartbeats();
  void tell_gone(const Rank& rank);

  const dist::RolesSection roles_;
  const bool leads_;
  const size_t connections_;
  const double timeout_seconds_, heartbeat_timeout_seconds_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::mutex mutex_;
  std::vector<std::function<void(int64_t)>> on_gone_;
  std::vector<std::string> gone_;  // not warned of yet
  std::atomic<bool> ending_{false};
  std::condition_variable end_;
  std::thread heartbeats_;  // last: it uses the others
};

// Those of a run's config; null where no rank has a role of its own.
std::unique_ptr<RoleRanks> find_role_ranks(const train::RunConfig& config,
                                           const train::RunRanks& ranks);

}  // namespace temper::roles
