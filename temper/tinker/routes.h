// The Tinker API over HTTP: the routes below /api/v1/.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "temper/http/server.h"
#include "temper/serve/turn_queue.h"
#include "temper/tinker/service/service.h"

namespace temper::tinker {

// Clients are kept apart by the API keys that they send.
struct CallerRules {
  std::string host;     // address that the server listens on
  std::string api_key;  // those that are let in, separated by commas (http::AccessRules); empty:
                        // any that begins with tml-, on loopback alone
};

struct RouteOptions {
  CallerRules callers;
  int64_t most_request_bytes = int64_t{64} << 20;
};

class Routes {
 public:
  // `service` outlives this.
  Routes(Service& service, RouteOptions options);
  ~Routes();

  // What to do with a request; nothing where its path is not below /api/v1/.
  std::optional<http::Admission> admit(const http::RequestHead& head);

 private:
  using Handle = std::function<void(const std::shared_ptr<http::Exchange>&)>;
  using Respond = std::function<Json(const std::string& owner, http::Exchange&)>;
  http::Admission post(const http::RequestHead& head, Respond respond);
  http::Admission get(Respond respond);
  std::optional<http::Admission> route(const http::RequestHead& head, const std::string& path);
  std::string allowed_methods(http::RequestHead head, const std::string& path);
  std::optional<http::Admission> post_route(const http::RequestHead& head, const std::string& path);
  std::optional<http::Admission> get_route(const http::RequestHead& head, const std::string& path);
  std::optional<http::Admission> run_route(const http::RequestHead& head, const std::string& path);
  Json forward_backward(const std::string& owner, http::Exchange& exchange);
  void answer(const std::shared_ptr<http::Exchange>& exchange, const Respond& respond);

  Service& service_;
  const RouteOptions options_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool ends_ = false;
  std::thread clock_;  // calls Service::tick
  // Requests are parsed on these; large ones one at a time. Keys take turns.
  serve::TurnQueue large_, small_{2};
};

}  // namespace temper::tinker
