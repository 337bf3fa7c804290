// A rank that does not train (the config's section `roles`): from when it has found the others
// until rank 0 says that the run has ended.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "temper/dist/world.h"
#include "temper/serve/server.h"
#include "temper/train/trainer.h"

namespace temper::workers {

// An API key that nobody can guess.
std::string random_key();

class RankServer {
 public:
  // Listens on a free port, with a random key, and tells both to the ranks that train
  // (role_ranks.h). It sends them heartbeats from now on; their requests wait until serve().
  // training: the number of ranks that train. Throws RunError.
  RankServer(dist::World& world, size_t training);
  ~RankServer();

  // Adds the handler of a path (wire.h). To be called before serve().
  void add(const std::string& path, serve::ServerOptions::Route route);

  // Answers requests while `work` runs on this thread, which has to end when `stop` returns true.
  // Returns how the run has ended. Throws RunError where rank 0 is lost, and what `work` throws.
  // Signals do not end it: the ranks that train save first, and may need this one for that.
  train::RunOutcome serve(const std::function<void(const std::function<bool()>& stop)>& work);

 private:
  serve::ServerOptions options(const dist::World& world, size_t training);
  std::string answer(const std::string& path, const std::string& name, const std::string& body);
  bool over();
  void close();

  std::map<std::string, serve::ServerOptions::Route> routes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool serves_ = false, closes_ = false;
  std::optional<train::RunOutcome> outcome_;  // as rank 0 said
  std::atomic<bool> ended_{false};            // rank 0 has said it
  std::atomic<bool> leader_came_{false}, leader_left_{false};
  const dist::World& world_;
  // until when rank 0 must come, and when it is looked for next, in steady_seconds()
  double waits_until_ = 0, looks_at_ = 0;
  serve::Server server_;  // its routes use the others
  std::atomic<bool> listened_{false};
  std::thread listening_;  // last: it uses the others
};

}  // namespace temper::workers
