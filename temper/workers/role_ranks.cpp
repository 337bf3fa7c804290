#include "temper/workers/role_ranks.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "temper/base/clock.h"
#include "temper/base/error.h"
#include "temper/base/json.h"
#include "temper/workers/wire.h"

namespace temper::workers {

using generate::remote::PoolOptions;
using generate::remote::ServerPool;
using http::Client;

namespace {

constexpr double kLongestTimeout = 1e6;  // seconds; larger values overflow milliseconds of 32 bits
// An answer takes as long as its completions; heartbeats tell of a rank that is gone.
constexpr double kLongestAnswer = 6 * 3600;
constexpr double kEndSeconds = 10;  // seconds to tell a rank that the run has ended
// time between two checks of the heartbeats
constexpr auto kBetweenLooks = std::chrono::milliseconds(500);
// seconds between two checks beyond which this process itself stood still
constexpr double kStoodStillSeconds = 5;

}  // namespace

std::unique_ptr<RoleRanks> find_role_ranks(const train::RunConfig& config,
                                           const train::RunRanks& ranks) {
  if (!config.roles.any()) return nullptr;
  return std::make_unique<RoleRanks>(
      config.roles, *ranks.world, static_cast<size_t>(ranks.mesh.world->size()),
      longest_wait_seconds(config.mesh), config.mesh.heartbeat_timeout_seconds);
}

double longest_wait_seconds(const dist::MeshSection& mesh) {
  return std::clamp(60 * mesh.timeout_minutes, kLongestAnswer, kLongestTimeout);
}

size_t connections_of_each(size_t training) {
  constexpr size_t kAll = 512;
  return std::clamp<size_t>(kAll / training, 8, 128);
}

struct RoleRanks::Rank {
  int64_t number = 0;
  PoolOptions::Server server;
  std::unique_ptr<http::Client> connection;  // connection that carries the rank's heartbeats
  std::thread thread;
  std::atomic<bool> ended{false};  // the thread has ended
  std::atomic<double> heard{0};    // steady_seconds() of the last heartbeat; 0: none yet
  std::atomic<bool> silent{false}, gone{false};
};

RoleRanks::RoleRanks(const dist::RolesSection& roles, dist::World& world, size_t training,
                     double timeout_seconds, double heartbeat_timeout_seconds)
    : roles_(roles),
      leads_(world.rank() == 0),
      connections_(connections_of_each(training)),
      timeout_seconds_(timeout_seconds),
      heartbeat_timeout_seconds_(heartbeat_timeout_seconds) {
  for (const int number : roles.serving()) {
    const std::string name = str("rank ", number);
    const Json about =
        parse_json(world.ask(train::serving_name(number),
                             str(name, ", which has a role of its own, did not come")),
                   name);
    auto rank = std::make_unique<Rank>();
    rank->number = number;
    rank->server = {http::parse_url(about.value("url", "")), about.value("key", ""),
                    str(name, " on ", about.value("host", ""))};
    ranks_.push_back(std::move(rank));
  }
  for (const auto& rank : ranks_) {
    rank->connection =
        std::make_unique<http::Client>(rank->server.url, rank->server.api_key, timeout_seconds);
    rank->thread = std::thread([this, r = rank.get()] {
      follow_heartbeats(*r);
      r->ended = true;
    });
  }
  heartbeats_ = std::thread([this] { watch_heartbeats(); });
}

RoleRanks::~RoleRanks() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  end_.notify_all();
  heartbeats_.join();
  for (const auto& rank : ranks_) {
    // Repeated, as the thread may not have begun its request yet.
    for (; !rank->ended; std::this_thread::sleep_for(std::chrono::milliseconds(5)))
      rank->connection->stop();
    rank->thread.join();
  }
}

void RoleRanks::follow_heartbeats(Rank& rank) {
  rank.connection->follow_heartbeats(leads_ ? kHeartbeat : kWatch,
                                     [&] { rank.heard = steady_seconds(); });
  if (ending_) return;
  {
    const std::lock_guard lock(mutex_);
    gone_.push_back(rank.server.name +
                    (rank.silent ? " sends no heartbeat (its process is stopped, or its host "
                                   "frozen)"
                                 : " is gone"));
    rank.gone = true;
  }
  tell_gone(rank);
}

void RoleRanks::tell_gone(const Rank& rank) {
  std::vector<std::function<void(int64_t)>> told;
  {
    const std::lock_guard lock(mutex_);
    told = on_gone_;
  }
  for (const auto& gone : told) gone(rank.number);
}

// Ends the waiting for those that fell silent.
void RoleRanks::watch_heartbeats() {
  double seen = steady_seconds();
  const auto ends = [this] {
    std::unique_lock lock(mutex_);
    return end_.wait_for(lock, kBetweenLooks, [this] { return ending_.load(); });
  };
  while (!ends()) {
    const double now = steady_seconds();
    // It was this process that stood still (Ctrl-Z, a container that is paused).
    const bool stood_still = now - std::exchange(seen, now) > kStoodStillSeconds;
    for (const auto& rank : ranks_) {
      if (rank->gone && rank->silent) tell_gone(*rank);
      if (rank->ended || rank->heard == 0) continue;
      if (stood_still) rank->heard = now;
      if (now - rank->heard < heartbeat_timeout_seconds_) continue;
      rank->silent = true;
      rank->connection->stop();
    }
  }
}

PoolOptions RoleRanks::pool_of(const std::vector<int64_t>& ranks) const {
  PoolOptions options{.servers = {}, .timeout_seconds = timeout_seconds_, .may_return = false};
  for (const int64_t rank : ranks) options.servers.push_back(find(rank).server);
  return options;
}

RoleRanks::Rank& RoleRanks::find(int64_t rank) const {
  const auto found = std::find_if(ranks_.begin(), ranks_.end(),
                                  [&](const auto& one) { return one->number == rank; });
  check(found != ranks_.end(), "rank ", rank, " has no role of its own");
  return **found;
}

void RoleRanks::on_gone(std::function<void(int64_t)> gone) {
  {
    const std::lock_guard lock(mutex_);
    on_gone_.push_back(gone);
  }
  for (const auto& rank : ranks_)
    if (rank->gone) gone(rank->number);
}

void RoleRanks::watch(const std::shared_ptr<ServerPool>& pool, const std::vector<int64_t>& role) {
  const int64_t together = role == roles_.reward ? 1 : roles_.tensor;
  on_gone([role, alive = std::weak_ptr(pool), together](int64_t rank) {
    const auto place = std::find(role.begin(), role.end(), rank);
    if (const auto servers = alive.lock(); servers && place != role.end())
      servers->leave_out(static_cast<size_t>((place - role.begin()) / together));
  });
}

void RoleRanks::drop(size_t place) {
  for (const int rank : roles_.group_of(roles_.rollout.at(place))) find(rank).connection->stop();
}

void RoleRanks::warn(train::Messages& messages) {
  std::vector<std::string> gone;
  {
    const std::lock_guard lock(mutex_);
    gone.swap(gone_);
  }
  for (const std::string& name : gone)
    messages.warn_once(name, name +
                                 "; the run continues without it, and others do what it was asked "
                                 "for");
}

void RoleRanks::end(const train::RunOutcome& outcome) {
  if (!leads_) return;
  ending_ = true;
  for (const auto& rank : ranks_) {
    if (rank->gone) continue;
    try {
      http::Client(rank->server.url, rank->server.api_key, kEndSeconds)
          .post(kEnd, end_text(outcome));
    } catch (const Error&) {
      // The rank is gone already.
    }
  }
}

}  // namespace temper::workers
