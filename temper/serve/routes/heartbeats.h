// GET /heartbeat and GET /watch: bytes by which clients notice that the server is there.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "temper/http/server.h"
#include "temper/serve/server.h"

namespace temper::serve {

// All functions may be called from any thread.
class Heartbeats {
 public:
  // options: of a server with on_leader, or send() is not called. They outlive it.
  explicit Heartbeats(const ServerOptions& options) : options_(options) {}

  // Begins to send to a client, until stop() or until it is gone. is_leader: on_leader hears of it.
  void send(const std::shared_ptr<http::Exchange>& exchange, bool is_leader);
  // Ends those of all clients, also of later ones.
  void stop();

 private:
  const ServerOptions& options_;
  std::mutex mutex_;
  bool stopped_ = false;
  std::vector<std::shared_ptr<http::Exchange>> clients_;
};

}  // namespace temper::serve
