#include "temper/generate/remote/server_pool.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "temper/base/clock.h"

namespace temper::generate::remote {
namespace {

constexpr double kFirstWait = 0.5;  // seconds, where a server answered with an error
constexpr double kBetweenProbes = 0.3;
constexpr double kProbeTimeout = 3;

std::chrono::duration<double> seconds_of(double seconds) {
  return std::chrono::duration<double>(seconds);
}

}  // namespace

// A client of the server's, taken from those that are idle and given back.
class ServerPool::Connection {
 public:
  Connection(ServerPool& pool, Server& server) : pool_(pool), server_(server) {
    const std::lock_guard lock(pool.mutex_);
    check(!pool.stopping_, server.url.str(), ": the run is ending");
    if (server.idle.empty()) {
      client_ =
          std::make_unique<HttpClient>(server.url, pool.api_key_, pool.section_.timeout_seconds);
    } else {
      client_ = std::move(server.idle.back());
      server.idle.pop_back();
    }
    pool.busy_.push_back(client_.get());
  }
  ~Connection() {
    const std::lock_guard lock(pool_.mutex_);
    std::erase(pool_.busy_, client_.get());
    server_.idle.push_back(std::move(client_));
  }
  HttpClient& http() { return *client_; }

 private:
  ServerPool& pool_;
  Server& server_;
  std::unique_ptr<HttpClient> client_;
};

ServerPool::ServerPool(const ServerSection& section, int64_t vocabulary)
    : section_(section),
      api_key_(section.api_key()),
      protocol_(make_protocol(section.kind, vocabulary)) {
  for (const std::string& url : section.urls) {
    servers_.push_back(std::make_unique<Server>());
    servers_.back()->url = parse_url(url);
  }
  check<ConfigError>(!servers_.empty(), "rollout.server.urls: no url");
  prober_ = std::thread([this] { probe(); });
}

ServerPool::~ServerPool() {
  stop();
  prober_.join();
}

void ServerPool::stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  for (HttpClient* client : busy_) client->stop();
  changed_.notify_all();
}

void ServerPool::set_weights(RemoteWeights weights) {
  const std::lock_guard lock(mutex_);
  weights_ = std::move(weights);
}

// Of the servers that answer the one whose turn it is, other than `avoid` where there is one; where
// none does, the next after it.
size_t ServerPool::choose(size_t turn, size_t avoid) {
  const std::lock_guard lock(mutex_);
  std::vector<size_t> good;
  for (size_t i = 0; i < servers_.size(); ++i)
    if (servers_[i]->alive && i != avoid) good.push_back(i);
  if (!good.empty()) return good[turn % good.size()];
  if (avoid < servers_.size() && servers_[avoid]->alive) return avoid;
  return avoid < servers_.size() ? (avoid + 1) % servers_.size() : turn % servers_.size();
}

bool ServerPool::another_answers(size_t than) {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < servers_.size(); ++i)
    if (i != than && servers_[i]->alive) return true;
  return false;
}

void ServerPool::leave_out(Server& server) {
  {
    const std::lock_guard setting_up(server.setting_up);
    server.weights = {};  // it may come back as another process
  }
  const std::lock_guard lock(mutex_);
  server.alive = false;
  server.idle.clear();
  changed_.notify_all();
}

// Until the time is over; with `any`, also until a server answers.
void ServerPool::wait_for(size_t failed, double seconds, bool any) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, seconds_of(seconds), [&] {
    return stopping_ || (any && std::any_of(servers_.begin(), servers_.end(),
                                            [](const auto& s) { return s->alive; }));
  });
  check(!stopping_, servers_[failed]->url.str(), ": the run is ending");
}

// Asks those that were left out whether they are back.
void ServerPool::probe() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const bool all_alive = std::all_of(servers_.begin(), servers_.end(),
                                       [](const auto& server) { return server->alive; });
    if (all_alive) {
      changed_.wait(lock);
      continue;
    }
    changed_.wait_for(lock, seconds_of(kBetweenProbes), [this] { return stopping_; });
    for (const auto& server : servers_) {
      if (server->alive || stopping_) continue;
      lock.unlock();
      bool answers = false;
      try {
        HttpClient(server->url, api_key_, kProbeTimeout).get("/health");
        answers = true;
      } catch (const HttpFailure& e) {
        answers = !e.unreachable;  // it may have no such route
      }
      lock.lock();
      server->alive = answers;
      if (answers) changed_.notify_all();
    }
  }
}

// Requests that wait for another one's attempt share its result: a load that takes too long is not
// asked for again by each of them.
void ServerPool::set_up(Server& server, HttpClient& http, const RemoteWeights& weights) {
  const int64_t before = server.set_ups;
  const std::lock_guard lock(server.setting_up);
  const bool loaded = weights.version.empty() || server.weights.version == weights.version;
  if (!server.model.empty() && loaded) return;
  if (server.set_ups != before && server.set_up_failure)
    std::rethrow_exception(server.set_up_failure);
  try {
    if (server.model.empty()) server.model = protocol_->model_name(http);
    if (!loaded) {
      const RemoteWeights old = std::exchange(server.weights, {});
      protocol_->load(http, weights, old);
      server.weights = weights;
    }
    server.set_up_failure = nullptr;
  } catch (...) {
    server.set_up_failure = std::current_exception();
    ++server.set_ups;
    throw;
  }
  ++server.set_ups;
}

std::vector<RemoteSample> ServerPool::try_once(Server& server, const SampleTask& task) {
  RemoteWeights weights;
  {
    const std::lock_guard lock(mutex_);
    weights = weights_;
  }
  Connection connection(*this, server);
  for (bool again : {true, false}) {
    set_up(server, connection.http(), weights);
    try {
      return protocol_->sample(connection.http(), server.model, task, weights);
    } catch (const WrongWeights&) {
      if (!again) throw;
      // It was started again between two requests.
      const std::lock_guard lock(server.setting_up);
      server.weights = {};
    }
  }
  return {};
}

std::vector<RemoteSample> ServerPool::sample(const SampleTask& task, size_t turn) {
  size_t failed = SIZE_MAX;
  double wait = kFirstWait;
  for (int tries = 1;; ++tries) {
    const size_t number = choose(turn, failed);
    Server& server = *servers_[number];
    std::string why;
    bool unreachable = false;
    try {
      return try_once(server, task);
    } catch (const HttpFailure& e) {
      why = e.what();
      unreachable = e.unreachable;
    } catch (const DataError& e) {
      why = e.what();
    } catch (const WrongWeights& e) {
      why = e.what();
    }
    failed = number;
    if (unreachable) leave_out(server);
    check(tries < kTries, "rollout.server: ", server.url.str(), " failed ", tries, " times: ", why);
    if (another_answers(number)) continue;
    // A server that is gone may come back at any moment; one that refuses gets some time.
    wait_for(number, unreachable ? kMostWait : wait, unreachable);
    wait = std::min(2 * wait, kMostWait);
  }
}

}  // namespace temper::generate::remote
