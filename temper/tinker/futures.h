// Answers that clients fetch when they are there: create, resolve, retrieve.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "temper/http/server.h"

namespace temper::tinker {

// Whose fault a failure is, as clients are told.
enum class FailureCategory { kUser, kServer };

// Who asks: the key that a request came with (routes.h), and the session that it belongs to.
struct Asker {
  std::string owner, session;
};

class Futures {
 public:
  struct Limits {
    double hold_seconds = 40;         // most time that a client waits for an answer (long poll)
    double keep_seconds = 600;        // that a result is kept after a client has fetched it
    double unfetched_seconds = 7200;  // and before
    // Of results. Beyond, those that were fetched go, the oldest first; then the oldest of whoever
    // holds most: among the owners, and among that one's sessions.
    int64_t bytes = int64_t{1} << 30;
    size_t results = size_t{1} << 16;
    size_t waiting = 4096;  // clients that wait
  };
  explicit Futures(const Limits& limits);

  using Send = std::function<void(http::Answer)>;

  // A new future's id, which nobody can guess. From any thread, as all others.
  std::string open(const Asker& asker);
  // The result, once: JSON text, or a protobuf message, which is kept compressed (Zstandard) where
  // most of it is `sparse`. Nothing happens if the future has one.
  enum class Kind { kJson, kProtobuf, kSparseProtobuf };
  void resolve(const std::string& id, std::string body, Kind kind = Kind::kJson);
  void fail(const std::string& id, const std::string& message, FailureCategory category);
  // Sends the result when it is there, status 408 when hold_seconds have passed, 410 for one that
  // was dropped and 404 for an id that there never was, or that is another owner's. An answer that
  // is kept compressed has the header Content-Encoding.
  void retrieve(const std::string& owner, const std::string& id, Send send);
  // Whether it is the owner's and has no result.
  bool is_open(const std::string& owner, const std::string& id);
  // What time has done. `now` in steady_seconds(); called a few times a second.
  void tick(double now);
  // Fails all that have no result: the server ends.
  void close();

 private:
  struct Future {
    Asker asker;
    bool done = false, fetched = false;
    http::Answer answer;
    double since = 0;                        // when it was opened, then resolved, then fetched
    std::list<std::string>::iterator place;  // in its list, where it is done
  };
  // What an owner, or a session, has of results.
  struct Held {
    int64_t bytes = 0;
    size_t results = 0;
  };
  struct Results {
    Held held;
    std::list<std::string> order;  // those that were not fetched, oldest first
  };
  struct Owned {
    Held held;
    std::map<std::string, Results> sessions;
  };
  struct Waiting {
    Send send;
    double until;
  };
  using Sends = std::vector<std::pair<Send, http::Answer>>;

  void finish(const std::string& id, http::Answer answer);
  void add(Future& future, const std::string& id);
  void set_fetched(Future& future);
  void take_out(Future& future);
  void drop(std::map<std::string, Future>::iterator future);
  std::string to_drop() const;
  double share_of(const Held& held) const;
  http::Answer missing(const std::string& owner, const std::string& id) const;

  const Limits limits_;
  std::mutex mutex_;
  std::map<std::string, Future> futures_;
  Held held_;                           // of all
  std::list<std::string> fetched_;      // results that were fetched, oldest first
  std::map<std::string, Owned> owned_;  // results that were not
  // The last results that were dropped, and whose they were.
  std::map<std::string, std::string> dropped_;
  std::deque<std::string> dropped_order_;
  std::multimap<std::string, Waiting> waiting_;
};

}  // namespace temper::tinker
