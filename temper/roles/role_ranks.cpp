#include "temper/roles/role_ranks.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/json.h"
#include "temper/roles/wire.h"

namespace temper::roles {

using generate::remote::HttpClient;
using generate::remote::PoolOptions;
using generate::remote::ServerPool;

namespace {

constexpr double kLongestTimeout = 1e6;  // seconds, which are milliseconds of 32 bits somewhere
constexpr double kEndSeconds = 10;       // for the word that the run has ended

}  // namespace

std::unique_ptr<RoleRanks> find_role_ranks(const train::RunConfig& config,
                                           const train::RunRanks& ranks) {
  if (!config.roles.any()) return nullptr;
  return std::make_unique<RoleRanks>(config.roles, *ranks.world,
                                     static_cast<size_t>(ranks.mesh.world->size()),
                                     longest_wait_seconds(config.mesh));
}

double longest_wait_seconds(const dist::MeshSection& mesh) {
  return std::min(60 * mesh.timeout_minutes, kLongestTimeout);
}

size_t connections_of_each(size_t training) {
  constexpr size_t kAll = 512;
  return std::clamp<size_t>(kAll / training, 8, 128);
}

struct RoleRanks::Rank {
  int64_t number = 0;
  PoolOptions::Server server;
  std::unique_ptr<HttpClient> attending;  // of rank 0
  std::thread thread;
  std::atomic<bool> ended{false};  // the thread
};

RoleRanks::RoleRanks(const dist::RolesSection& roles, dist::World& world, size_t training,
                     double timeout_seconds)
    : roles_(roles),
      leads_(world.rank() == 0),
      connections_(connections_of_each(training)),
      timeout_seconds_(timeout_seconds) {
  for (const int number : roles.serving()) {
    const std::string name = str("rank ", number);
    const Json about =
        parse_json(world.ask(train::serving_name(number),
                             str(name, ", which has a role of its own, did not come")),
                   name);
    auto rank = std::make_unique<Rank>();
    rank->number = number;
    rank->server = {generate::remote::parse_url(about.value("url", "")), about.value("key", ""),
                    str(name, " on ", about.value("host", ""))};
    ranks_.push_back(std::move(rank));
  }
  for (const auto& rank : ranks_) {
    rank->attending =
        std::make_unique<HttpClient>(rank->server.url, rank->server.api_key, timeout_seconds);
    rank->thread = std::thread([this, r = rank.get()] {
      attend(*r);
      r->ended = true;
    });
  }
}

RoleRanks::~RoleRanks() {
  ending_ = true;
  for (const auto& rank : ranks_) {
    // What is to be stopped may be about to begin.
    for (; !rank->ended; std::this_thread::sleep_for(std::chrono::milliseconds(5)))
      rank->attending->stop();
    rank->thread.join();
  }
}

void RoleRanks::attend(Rank& rank) {
  rank.attending->attend(leads_ ? kAttend : kWatch);
  if (ending_) return;
  std::vector<Watch> watches;
  {
    const std::lock_guard lock(mutex_);
    gone_.push_back(rank.server.name);
    watches = watches_;
  }
  for (const Watch& watch : watches) {
    const auto pool = watch.pool.lock();
    const auto place = std::find(watch.role.begin(), watch.role.end(), rank.number);
    if (pool && place != watch.role.end())
      pool->leave_out(static_cast<size_t>((place - watch.role.begin()) / roles_.tensor));
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

void RoleRanks::watch(const std::shared_ptr<ServerPool>& pool, const std::vector<int64_t>& role) {
  const std::lock_guard lock(mutex_);
  watches_.push_back({pool, role});
}

void RoleRanks::drop(size_t place) {
  for (const int rank : roles_.group_of(roles_.rollout.at(place))) find(rank).attending->stop();
}

void RoleRanks::warn(train::Messages& messages) {
  std::vector<std::string> gone;
  {
    const std::lock_guard lock(mutex_);
    gone.swap(gone_);
  }
  for (const std::string& name : gone)
    messages.warn_once(name, str(name,
                                 " is gone; the run goes on without it, and what it was "
                                 "asked for others do"));
}

void RoleRanks::end(const train::RunOutcome& outcome) {
  if (!leads_) return;
  ending_ = true;
  for (const auto& rank : ranks_) {
    try {
      HttpClient(rank->server.url, rank->server.api_key, kEndSeconds).post(kEnd, end_text(outcome));
    } catch (const Error&) {
      // It is gone already.
    }
  }
}

}  // namespace temper::roles
