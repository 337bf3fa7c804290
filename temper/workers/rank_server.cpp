#include "temper/workers/rank_server.h"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "temper/base/clock.h"
#include "temper/base/error.h"
#include "temper/dist/environment.h"
#include "temper/train/ranks.h"
#include "temper/workers/role_ranks.h"
#include "temper/workers/wire.h"

namespace temper::workers {
namespace {

using std::chrono::milliseconds;

constexpr double kLongestWait = 120;  // longest wait for rank 0, in seconds
// the wait before this rank reports an end: ranks that know more of it report first
constexpr auto kPatience = milliseconds(1500);
// threads for weights, for the end of the run, and for rank 0, which waits for it
constexpr int64_t kMoreThreads = 16;

}  // namespace

std::string random_key() {
  std::random_device device;
  std::string key;
  for (int i = 0; i < 8; ++i) {
    char part[9];
    std::snprintf(part, sizeof part, "%08x", device());
    key += part;
  }
  return key;
}

serve::ServerOptions RankServer::options(const dist::World& world, size_t training) {
  serve::ServerOptions o;
  o.host = world.address();
  o.port = 0;
  o.api_key = random_key();
  // Each rank that trains may wait with all of its connections.
  const size_t each = connections_of_each(training) + kMostScored + 2;
  o.most_threads = static_cast<int64_t>(training * each) + kMoreThreads;
  o.most_request_bytes = INT64_MAX;  // weights can be of any size
  for (const char* path : {kSample, kWeights, kScore, kJudge, kEnd})
    o.routes[path] = [this, path](const std::string& name, const std::string& body) {
      return answer(path, name, body);
    };
  o.on_leader = [this](bool connected) { (connected ? leader_came_ : leader_left_) = true; };
  return o;
}

RankServer::RankServer(dist::World& world, size_t training)
    : world_(world), server_(options(world, training), nullptr) {
  server_.bind();
  const Json about{
      {"url", server_.address()}, {"key", server_.api_key()}, {"host", dist::host_name()}};
  listening_ = std::thread([this] {
    server_.listen();
    listened_ = true;
  });
  try {
    world.tell(train::serving_name(world.rank()), about.dump());
  } catch (...) {
    close();
    throw;
  }
}

RankServer::~RankServer() { close(); }

void RankServer::close() {
  {
    const std::lock_guard lock(mutex_);
    closes_ = true;
  }
  changed_.notify_all();
  if (!listening_.joinable()) return;
  // Repeated, as the server may not have begun to listen yet.
  for (; !listened_; std::this_thread::sleep_for(milliseconds(5))) server_.stop();
  listening_.join();
}

void RankServer::add(const std::string& path, serve::ServerOptions::Route route) {
  routes_[path] = std::move(route);
}

std::string RankServer::answer(const std::string& path, const std::string& name,
                               const std::string& body) {
  if (path == kEnd) {
    const std::lock_guard lock(mutex_);
    outcome_ = parse_end(body);
    ended_ = true;
    return "{}";
  }
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return serves_ || closes_; });
    check(serves_, "this rank has ended");
  }
  const auto route = routes_.find(path);
  check<DataError>(route != routes_.end(), path, ": this rank does not have that role");
  return route->second(name, body);
}

bool RankServer::over() {
  // Until rank 0 follows this rank's heartbeats, its end is noticed by its rendezvous alone.
  if (!leader_came_ && !ended_ && steady_seconds() > looks_at_) {
    try {
      world_.check_meeting_place();
    } catch (const Error&) {
      leader_left_ = true;
    }
    looks_at_ = steady_seconds() + 1;
  }
  return ended_ || leader_left_ || (!leader_came_ && steady_seconds() > waits_until_);
}

train::RunOutcome RankServer::serve(
    const std::function<void(const std::function<bool()>& stop)>& work) {
  waits_until_ = steady_seconds() + kLongestWait;
  {
    const std::lock_guard lock(mutex_);
    serves_ = true;
  }
  changed_.notify_all();
  const auto stop = [this] { return over(); };
  {
    struct Closing {
      RankServer& server;
      ~Closing() { server.close(); }
    } const closing{*this};
    work(stop);
    while (!stop()) std::this_thread::sleep_for(milliseconds(50));
  }
  if (!ended_) std::this_thread::sleep_for(kPatience);
  const std::lock_guard lock(mutex_);
  check(outcome_.has_value(), "rank 0 is gone, and this rank serves it; the run has ended");
  return *outcome_;
}

}  // namespace temper::workers
