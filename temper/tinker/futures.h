// Answers that clients fetch when they are there: create, resolve, retrieve.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "temper/serve/http_server.h"

namespace temper::tinker {

// Whose fault a failure is, as clients are told.
enum class FailureCategory { kUser, kServer };

class Futures {
 public:
  struct Limits {
    double hold_seconds = 40;          // most time that a client waits for an answer (long poll)
    double keep_seconds = 600;         // that a result is kept after a client has fetched it
    double unfetched_seconds = 7200;   // and before
    int64_t bytes = int64_t{1} << 30;  // of results; beyond, the oldest ones go
    size_t results = size_t{1} << 16;  // the same
    size_t waiting = 4096;             // clients that wait
  };
  explicit Futures(const Limits& limits);

  using Send = std::function<void(serve::Answer)>;

  // A new future's id. From any thread, as all others.
  std::string open();
  // The result, once: JSON text or a protobuf message. Nothing happens if the future has one.
  void resolve(const std::string& id, std::string body, bool is_protobuf = false);
  void fail(const std::string& id, const std::string& message, FailureCategory category);
  // Sends the result when it is there, status 408 when hold_seconds have passed, 410 for one that
  // was dropped and 404 for an id that there never was.
  void retrieve(const std::string& id, Send send);
  // What time has done. `now` in steady_seconds(); called a few times a second.
  void tick(double now);
  // Fails all that have no result: the server ends.
  void close();

 private:
  struct Future {
    bool done = false, fetched = false;
    serve::Answer answer;
    double since = 0;                        // when it was opened, then resolved, then fetched
    std::list<std::string>::iterator place;  // in order_, where it is done
  };
  struct Waiting {
    Send send;
    double until;
  };
  using Sends = std::vector<std::pair<Send, serve::Answer>>;

  void finish(const std::string& id, serve::Answer answer);
  void drop(std::map<std::string, Future>::iterator future);
  serve::Answer missing(const std::string& id) const;

  const Limits limits_;
  const std::string name_;  // of this server's ids
  std::mutex mutex_;
  uint64_t opened_ = 0;
  int64_t bytes_ = 0;
  std::map<std::string, Future> futures_;
  std::list<std::string> order_;  // those that are done, oldest first
  std::multimap<std::string, Waiting> waiting_;
};

}  // namespace temper::tinker
