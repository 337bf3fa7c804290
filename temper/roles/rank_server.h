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

namespace temper::roles {

// An API key that nobody can guess.
std::string random_key();

class RankServer {
 public:
  // Takes a port where the others reach it, asks for a key that is drawn at random, and tells both
  // to them (role_ranks.h). From here on it sends them heartbeats; what they ask waits until
  // serve(). training: how many train. Throws RunError.
  RankServer(dist::World& world, size_t training);
  ~RankServer();

  // What it answers, by path (wire.h). Before serve().
  void add(const std::string& path, serve::ServerOptions::Route route);

  // Answers while `work` runs on this thread, which ends when `stop`, asked now and then, says so.
  // Returns how the run has ended, and throws RunError where rank 0 is gone without a word, and
  // what `work` throws. Signals do not end it: those that train save what they have first, and may
  // need it for that.
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
  std::atomic<bool> ended_{false};            // it did
  std::atomic<bool> attended_{false}, left_{false};
  const dist::World& world_;
  double waits_until_ = 0, looks_at_ = 0;  // seconds: for rank 0 to attend; of the next look for it
  serve::Server server_;                   // its routes use the others
  std::atomic<bool> listened_{false};
  std::thread listening_;  // last: it uses the others
};

}  // namespace temper::roles
