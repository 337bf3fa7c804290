// Completions from servers, in the engine's place.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "temper/base/work_queue.h"
#include "temper/generate/completion_source.h"
#include "temper/generate/remote/server_pool.h"
#include "temper/text/tokenizer/tokenizer.h"

namespace temper::generate {

// What a completion says depends on the request's seed and index, its sample and its prompt, as far
// as the server samples reproducibly. Requests are sent by threads of their own; the rest is of one
// thread.
class RemoteEngine : public CompletionSource {
 public:
  // Throws ConfigError. Servers are first asked when there is something to sample.
  RemoteEngine(const ServerSection& section, int64_t vocabulary,
               std::shared_ptr<const Tokenizer> tokenizer);
  static constexpr size_t kMostConnections = 128;
  // Asks the servers of a pool that exists already. connections: the most requests at once.
  RemoteEngine(std::shared_ptr<remote::ServerPool> pool, std::shared_ptr<const Tokenizer> tokenizer,
               size_t connections = kMostConnections);
  ~RemoteEngine() override;

  // Throws ConfigError where stop texts lack a tokenizer, DataError for an empty prompt.
  RequestId submit(Request request, Callbacks callbacks = {}) override;
  void cancel(RequestId id) override;
  bool step(const Callbacks& callbacks) override;
  void rest() override {}

  // step() tells what happens to servers, and throws RunError where all are gone and `stop` says
  // that the run is to end.
  void watch(std::function<void(const std::string&)> tell, std::function<bool()> stop);
  // Ends what is going on: step() throws RunError. From any thread.
  void stop() { pool_->stop(); }
  remote::ServerPool& pool() { return *pool_; }
  // What the servers sample with from now on. Nothing may be going on.
  void set_weights(remote::RemoteWeights weights) { pool_->set_weights(std::move(weights)); }

 private:
  struct Asked {
    RequestId id = 0;
    Request request;
    Callbacks callbacks;
  };
  struct Task {
    std::shared_ptr<const Asked> asked;
    remote::SampleTask what;
    size_t turn = 0;
    std::vector<remote::RemoteSample> samples;
    bool cancelled = false;
  };

  void sample(const std::shared_ptr<Task>& task);
  void check_servers();
  void report(const Task& task, const Callbacks& callbacks) const;

  std::shared_ptr<remote::ServerPool> pool_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::function<void(const std::string&)> tell_;
  std::function<bool()> stop_;
  RequestId next_id_ = 1;
  size_t next_turn_ = 0;
  size_t open_ = 0;  // tasks that were not reported
  std::mutex mutex_;
  std::condition_variable done_changed_;
  std::vector<std::shared_ptr<Task>> done_;
  std::set<RequestId> cancelled_;
  std::exception_ptr failure_;
  WorkQueue queue_;  // last: its jobs use the others
};

}  // namespace temper::generate
