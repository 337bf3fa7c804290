// The Tinker API over HTTP: the routes below /api/v1/.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "temper/serve/http_server.h"
#include "temper/serve/turn_queue.h"
#include "temper/tinker/callers.h"
#include "temper/tinker/service.h"

namespace temper::tinker {

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
  std::optional<serve::Admission> admit(const serve::RequestHead& head);

 private:
  using Handle = std::function<void(const std::shared_ptr<serve::Exchange>&)>;
  using Respond = std::function<Json(const std::string& owner, serve::Exchange&)>;
  serve::Admission post(const serve::RequestHead& head, Respond respond);
  serve::Admission get(Respond respond);
  std::optional<serve::Admission> route(const serve::RequestHead& head, const std::string& path);
  std::string allowed_methods(serve::RequestHead head, const std::string& path);
  std::optional<serve::Admission> post_route(const serve::RequestHead& head,
                                             const std::string& path);
  std::optional<serve::Admission> get_route(const serve::RequestHead& head,
                                            const std::string& path);
  std::optional<serve::Admission> run_route(const serve::RequestHead& head,
                                            const std::string& path);
  Json forward_backward(const std::string& owner, serve::Exchange& exchange);
  void answer(const std::shared_ptr<serve::Exchange>& exchange, const Respond& respond);

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
