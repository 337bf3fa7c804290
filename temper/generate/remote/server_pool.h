// Several servers of one kind: which of them answers, which gets what weights, what happens when
// one is gone. Of any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "temper/generate/remote/protocol.h"

namespace temper::generate::remote {

// Has servers load weights in place of pools of other processes that ask the same servers: each
// server is given them once, by one process.
class WeightsLoader {
 public:
  virtual ~WeightsLoader() = default;
  // ServerPool::load() of that process. Throws as that, and RunError where the process does not
  // answer.
  virtual int64_t load(size_t server, const RemoteWeights& weights, int64_t lost) = 0;
  // Ends what is going on, from any thread.
  virtual void stop() = 0;
};

// Which servers a pool has, and how patient it is with them.
struct PoolOptions {
  struct Server {
    http::ServerUrl url;
    std::string api_key;  // empty: none
    std::string name;     // that errors begin with
  };
  std::vector<Server> servers;
  double timeout_seconds = 120;  // of one request
  // A server that is gone may come back. Else it is left out for good, and a request is tried on
  // all others.
  bool may_return = true;
  std::shared_ptr<WeightsLoader> loader;  // null: the pool has servers load weights itself
  // For one that is gone and had answered, or is busy; 0: as long as kTries take.
  double wait_seconds = 0;
  std::string wait_key = {};  // config key of wait_seconds, which messages name; empty: none
};
// The options of the section `rollout.server`. Throws ConfigError for an invalid url, and for a key
// that is not set.
PoolOptions pool_options(const ServerSection& section);

// Thrown where no server answers, or all are busy, for longer than a request may wait.
struct NoServer : RunError {
  using RunError::RunError;
};

class ServerPool {
 public:
  // Throws ConfigError where there is no server.
  ServerPool(PoolOptions options, std::unique_ptr<Protocol> protocol);
  ~ServerPool();

  const Protocol& protocol() const { return *protocol_; }
  // What servers sample with from now on; each is given them before its next request.
  void set_weights(RemoteWeights weights);
  // Has a server load these weights, unless it has them already. Loads of a server are counted from
  // 1: gives the number of the one that its weights are from. `lost`: the load after which it was
  // found without them, such as by a restart; where it has been loaded since, nothing is to be
  // done. Throws http::Failure, DataError; RunError after stop().
  int64_t load(size_t server, const RemoteWeights& weights, int64_t lost);

  // Samples on server number `turn` of those that answer. A failed request is tried kTries times in
  // all, on another server where there is one, at most kMostWait apart; a server that does not
  // answer is left out until its /health does, and is then given the weights anew, as is one whose
  // answer names others. One that is busy (http::Failure::busy) is asked again later, which is no
  // try. Throws RunError that names the url.
  std::vector<RemoteSample> sample(const SampleTask& task, size_t turn);
  // The same for any other request: the body of the answer.
  std::string post(const std::string& path, const std::string& body, size_t turn);
  // Asks a server nothing more; what it was asked goes to others.
  void leave_out(size_t server);
  size_t num_alive();
  // What a user should know of servers that are gone or busy and come back, since the last call.
  std::vector<std::string> take_news();
  // Whether it knows that no server answers, or takes a request.
  bool all_gone();
  // Ends what is going on; whoever waits gets a RunError.
  void stop();

  static constexpr int kTries = 4;
  static constexpr double kMostWait = 5;  // seconds

 private:
  struct Server {
    PoolOptions::Server about;
    std::mutex setting_up;              // while its model's name is asked or weights are loaded
    std::atomic<int64_t> set_ups{0};    // attempts at that which have ended
    std::exception_ptr set_up_failure;  // of the last one
    std::string model;                  // empty: not asked
    RemoteWeights weights;              // that it was given; version empty: none, or lost
    int64_t load = 0;                   // the last one's number; 0: none
    bool alive = true;                  // guarded by mutex_, as what follows
    std::optional<double> gone_since;   // steady_seconds(), where the user was told
    std::vector<std::unique_ptr<http::Client>> idle;
    std::map<http::Client*, double> busy;  // since steady_seconds()
  };
  class Connection;

  size_t choose(size_t turn, size_t avoid);
  void on_some_server(size_t turn, const std::function<void(size_t)>& work);
  std::vector<RemoteSample> try_once(size_t number, const SampleTask& task);
  int64_t set_up(size_t number, http::Client& http, const RemoteWeights& weights);
  void give(size_t number, http::Client& http, const RemoteWeights& weights);
  void forget(Server& server, int64_t load);
  bool another_answers(size_t than);
  bool answers(const Server& server) const;
  std::string names() const;
  void wait_for(size_t failed, double seconds, bool any);
  void probe();
  bool wait_for_any(double end);
  bool wait_while_busy(size_t number, double seconds, const std::string& why);
  bool works_for_us(double now) const;
  double longest_wait(bool was_there) const;
  std::string wait_hint() const;
  void tell_gone(Server& server);
  void tell_back(Server& server);
  void tell_answer(const Server& server);

  const PoolOptions options_;
  std::unique_ptr<Protocol> protocol_;
  std::vector<std::unique_ptr<Server>> servers_;
  std::mutex mutex_;
  std::condition_variable changed_;
  RemoteWeights weights_;
  bool answered_ = false;             // some server, some request
  std::optional<double> busy_since_;  // steady_seconds(), no request was taken since
  std::optional<double> told_busy_;   // the same, where the user was told
  std::vector<std::string> news_;
  bool stopping_ = false;
  std::thread prober_;  // last: it uses the others
};

}  // namespace temper::generate::remote
