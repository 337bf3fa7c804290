#include "temper/generate/remote/server_pool.h"

#include <algorithm>
#include <utility>

#include "temper/base/clock.h"

namespace temper::generate::remote {
namespace {

constexpr double kFirstWait = 0.5;      // seconds, where a server answered with an error
constexpr double kMostRetryAfter = 60;  // of a wait that a busy server asks for

}  // namespace

// A client of the server's, taken from those that are idle and given back.
class ServerPool::Connection {
 public:
  Connection(ServerPool& pool, Server& server) : pool_(pool), server_(server) {
    const std::lock_guard lock(pool.mutex_);
    check(!pool.stopping_, server.about.name, ": the run is ending");
    if (!server.alive && !pool.options_.may_return)
      throw http::Failure(server.about.name + " is gone", true);
    if (server.idle.empty()) {
      client_ = std::make_unique<http::Client>(server.about.url, server.about.api_key,
                                               pool.options_.timeout_seconds);
    } else {
      client_ = std::move(server.idle.back());
      server.idle.pop_back();
    }
    server.busy[client_.get()] = steady_seconds();
  }
  ~Connection() {
    const std::lock_guard lock(pool_.mutex_);
    server_.busy.erase(client_.get());
    server_.idle.push_back(std::move(client_));
  }
  http::Client& http() { return *client_; }

 private:
  ServerPool& pool_;
  Server& server_;
  std::unique_ptr<http::Client> client_;
};

PoolOptions pool_options(const ServerSection& section) {
  PoolOptions options{.servers = {},
                      .timeout_seconds = section.timeout_seconds,
                      .wait_seconds = 60 * section.wait_minutes,
                      .wait_key = "rollout.server.wait_minutes"};
  const std::string key = section.api_key();
  for (const std::string& text : section.urls) {
    const http::ServerUrl url = http::parse_url(text);
    options.servers.push_back({url, key, "rollout.server: " + url.str()});
  }
  check<ConfigError>(!options.servers.empty(), "rollout.server.urls: no url");
  return options;
}

ServerPool::ServerPool(PoolOptions options, std::unique_ptr<Protocol> protocol)
    : options_(std::move(options)), protocol_(std::move(protocol)) {
  for (const PoolOptions::Server& about : options_.servers) {
    servers_.push_back(std::make_unique<Server>());
    servers_.back()->about = about;
  }
  if (options_.may_return) prober_ = std::thread([this] { probe(); });
}

ServerPool::~ServerPool() {
  stop();
  if (prober_.joinable()) prober_.join();
}

void ServerPool::stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  if (options_.loader) options_.loader->stop();
  for (const auto& server : servers_)
    for (const auto& [client, since] : server->busy) client->stop();
  changed_.notify_all();
}

void ServerPool::set_weights(RemoteWeights weights) {
  const std::lock_guard lock(mutex_);
  weights_ = std::move(weights);
}

// The server whose turn it is among those that answer, other than `avoid` where there is one; where
// none answers, the next after `avoid`.
size_t ServerPool::choose(size_t turn, size_t avoid) {
  const std::lock_guard lock(mutex_);
  std::vector<size_t> good;
  for (size_t i = 0; i < servers_.size(); ++i)
    if (servers_[i]->alive && i != avoid) good.push_back(i);
  if (!good.empty()) return good[turn % good.size()];
  if (!options_.may_return && !(avoid < servers_.size() && servers_[avoid]->alive))
    throw NoServer("all of " + names() + " are gone");
  if (avoid < servers_.size() && servers_[avoid]->alive) return avoid;
  return avoid < servers_.size() ? (avoid + 1) % servers_.size() : turn % servers_.size();
}

bool ServerPool::another_answers(size_t than) {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < servers_.size(); ++i)
    if (i != than && servers_[i]->alive) return true;
  return false;
}

std::string ServerPool::names() const {
  std::string all;
  for (const auto& server : servers_) all += (all.empty() ? "" : ", ") + server->about.name;
  return all;
}

size_t ServerPool::num_alive() {
  const std::lock_guard lock(mutex_);
  return static_cast<size_t>(std::count_if(servers_.begin(), servers_.end(),
                                           [](const auto& server) { return server->alive; }));
}

int64_t ServerPool::load(size_t number, const RemoteWeights& weights, int64_t lost) {
  Server& server = *servers_.at(number);
  Connection connection(*this, server);
  forget(server, lost);
  return set_up(number, connection.http(), weights);
}

// Whoever was late to notice does not undo a load that was made since.
void ServerPool::forget(Server& server, int64_t load) {
  const std::lock_guard lock(server.setting_up);
  if (server.load == load) server.weights = {};
}

// Requests that wait for another one's attempt share its result: a load that takes too long is not
// asked for again by each of them. Gives the number of the server's last load.
int64_t ServerPool::set_up(size_t number, http::Client& http, const RemoteWeights& weights) {
  Server& server = *servers_[number];
  const int64_t before = server.set_ups;
  const std::lock_guard lock(server.setting_up);
  const bool loaded = weights.version.empty() || server.weights.version == weights.version;
  if (!server.model.empty() && loaded) return server.load;
  if (server.set_ups != before && server.set_up_failure)
    std::rethrow_exception(server.set_up_failure);
  try {
    if (server.model.empty()) server.model = protocol_->model_name(http);
    if (!loaded) give(number, http, weights);
    server.set_up_failure = nullptr;
  } catch (...) {
    server.set_up_failure = std::current_exception();
    ++server.set_ups;
    throw;
  }
  ++server.set_ups;
  return server.load;
}

void ServerPool::give(size_t number, http::Client& http, const RemoteWeights& weights) {
  Server& server = *servers_[number];
  const RemoteWeights old = std::exchange(server.weights, {});
  if (options_.loader) {
    const bool lost = old.version.empty();
    server.load = options_.loader->load(number, weights, lost ? server.load : 0);
  } else {
    protocol_->load(http, weights, old);
    ++server.load;
  }
  server.weights = weights;
}

std::vector<RemoteSample> ServerPool::try_once(size_t number, const SampleTask& task) {
  RemoteWeights weights;
  {
    const std::lock_guard lock(mutex_);
    weights = weights_;
  }
  Server& server = *servers_[number];
  Connection connection(*this, server);
  for (bool again : {true, false}) {
    const int64_t load = set_up(number, connection.http(), weights);
    try {
      return protocol_->sample(connection.http(), server.model, task, weights);
    } catch (const WrongWeights&) {
      forget(server, load);  // it was started again between two requests
      if (!again) throw;
    } catch (const http::Failure& e) {
      if (e.unreachable) forget(server, load);  // it may come back as another process
      throw;
    }
  }
  return {};
}

std::vector<RemoteSample> ServerPool::sample(const SampleTask& task, size_t turn) {
  std::vector<RemoteSample> samples;
  on_some_server(turn, [&](size_t server) { samples = try_once(server, task); });
  return samples;
}

std::string ServerPool::post(const std::string& path, const std::string& body, size_t turn) {
  std::string answer;
  on_some_server(turn, [&](size_t server) {
    Connection connection(*this, *servers_[server]);
    answer = connection.http().post(path, body);
  });
  return answer;
}

void ServerPool::on_some_server(size_t turn, const std::function<void(size_t)>& work) {
  size_t failed = SIZE_MAX;
  double wait = kFirstWait;
  double busy_wait = kFirstWait;
  bool refused = false;       // by the server before, as busy
  std::optional<double> end;  // of the time in which tries do not count
  for (int tries = 1;; ++tries) {
    const size_t number = choose(turn, failed);
    const Server& server = *servers_[number];
    std::string why;
    bool unreachable = false;
    std::optional<double> busy;  // seconds until it is asked again
    try {
      work(number);
      return tell_answer(server);
    } catch (const http::Failure& e) {
      why = e.what();
      unreachable = e.unreachable;
      if (e.busy())
        busy = std::clamp(e.retry_after.value_or(busy_wait), kFirstWait, kMostRetryAfter);
    } catch (const DataError& e) {
      why = e.what();
    } catch (const WrongWeights& e) {
      why = e.what();
    }
    failed = number;
    if (busy) {
      --tries;
      refused = !refused && another_answers(number);
      if (refused) continue;
      if (!wait_while_busy(number, *busy, why))
        throw NoServer(temper::str(server.about.name, " took no request in ", longest_wait(true),
                                   " s", wait_hint(), ": ", why));
      busy_wait = std::min(2 * busy_wait, kMostWait);
      continue;
    }
    // A connection may end just when it is used again, of a server that is there.
    if (unreachable && (options_.may_return || !answers(server))) {
      leave_out(number);
      if (!options_.may_return) {
        tries = 0;
        continue;
      }
    }
    if (unreachable && !another_answers(number)) {
      if (!end) end = steady_seconds() + options_.wait_seconds;
      if (wait_for_any(*end)) {
        tries = 0;
        continue;
      }
    }
    if (tries == kTries)
      throw NoServer(temper::str(server.about.name, " failed ", tries, " times: ", why));
    if (another_answers(number)) continue;
    // A server that is gone may come back at any moment; one that refuses gets some time.
    wait_for(number, unreachable ? kMostWait : wait, unreachable);
    wait = std::min(2 * wait, kMostWait);
  }
}

}  // namespace temper::generate::remote
