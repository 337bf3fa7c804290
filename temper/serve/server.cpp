#include "temper/serve/server.h"

#include <algorithm>
#include <cstdio>
#include <thread>

#include "temper/base/error.h"
#include "temper/base/work_queue.h"
#include "temper/http/access.h"
#include "temper/http/server.h"
#include "temper/http/text.h"
#include "temper/serve/answering.h"
#include "temper/serve/asked.h"
#include "temper/serve/reply_json.h"
#include "temper/serve/request.h"
#include "temper/serve/routes/completions.h"
#include "temper/serve/routes/guard.h"
#include "temper/serve/routes/heartbeats.h"
#include "temper/serve/sessions/sessions.h"
#include "temper/serve/status.h"
#include "temper/serve/turn_queue.h"

namespace temper::serve {
namespace {

constexpr double kPatientSeconds = 3600;  // limit on waits for ranks of a run
constexpr double kRankHeadSeconds = 60;
constexpr const char *kJsonType = "application/json", *kMetricsType = "text/plain; version=0.0.4";
constexpr const char* kRoutes =
    ": not found; routes: GET /health, /metrics, /v1/models; POST /v1/completions, "
    "/v1/chat/completions, /update_weights_from_disk; with sessions GET and DELETE "
    "/v1/sessions/NAME, POST /v1/sessions/NAME/reward";

http::Admission at_once(http::Answer answer) { return {.answer = std::move(answer), .handle = {}}; }
http::Admission at_once(const http::Denial& denial) {
  return at_once(error_answer(denial.status, denial.message));
}

// Enough threads to keep the processors busy beside those that sample.
size_t parsing_threads() { return std::clamp(std::thread::hardware_concurrency(), 2u, 8u); }

http::Limits limits_of(const ServerOptions& options) {
  http::Limits limits;
  limits.connections = options.most_connections;
  limits.connections_of_address = options.most_connections_of_address;
  limits.buffered_bytes = std::max(limits.buffered_bytes, options.most_request_bytes);
  if (options.routes.empty()) return limits;
  // Ranks of a run trust each other, and may be slow, or stopped for a while.
  limits.buffered_bytes = INT64_MAX;
  limits.connections = std::max(limits.connections, 2 * options.most_threads);
  limits.connections_of_address = limits.connections;
  limits.head_seconds = kRankHeadSeconds;
  limits.idle_seconds = limits.body_seconds = limits.write_seconds = kPatientSeconds;
  limits.notice_unanswered = true;  // clients of /heartbeat are sent bytes
  return limits;
}

}  // namespace

struct Server::Impl : http::Handler {
  Impl(ServerOptions o, SamplerLoop* s)
      : options(std::move(o)),
        sampling(s),
        rules{options.host, options.api_key, options.allowed_origins, options.allowed_hosts},
        http(*this, limits_of(options)),
        small(options.routes.empty() ? parsing_threads()
                                     : static_cast<size_t>(options.most_threads)) {}

  http::Admission admit(const http::RequestHead& head) override;
  http::Answer refusal(int status, const std::string& message) override {
    return error_answer(status, message);
  }
  void done(const http::RequestHead& head, int status, int64_t bytes, double seconds) override;

  using Handler = std::function<void(const std::shared_ptr<http::Exchange>&)>;
  http::Admission dispatch(const http::RequestHead& head);
  std::optional<http::Admission> own_route(const http::RequestHead& head);
  std::optional<http::Admission> session_route(const http::RequestHead& head);
  http::Admission get(const http::RequestHead& head, const char* type,
                      const std::function<std::string()>& text);
  http::Admission post(const http::RequestHead& head, Handler handler);
  http::Answer health() const;
  void reload(http::Exchange& exchange);
  void stop();

  ServerOptions options;
  SamplerLoop* sampling;
  const http::AccessRules rules;
  Heartbeats heartbeats{options};
  http::Server http;
  // Members are destroyed before those that they use. Threads for loads of weights, which wait for
  // what is being sampled, and for the other requests, where clients take turns, by their address.
  WorkQueue loads;
  Completions completions{options, rules, sampling, small};
  TurnQueue small;
};

http::Admission Server::Impl::admit(const http::RequestHead& head) {
  try {
    if (head.path == "/health" && (head.method == "GET" || head.method == "HEAD"))
      return at_once(health());
    if (const auto denial = http::check_page(rules, head)) return at_once(*denial);
    http::Admission admission = head.method == "OPTIONS" && !head.header("origin").empty()
                                    ? at_once(http::preflight_answer())
                                    : dispatch(head);
    admission.headers = http::cors_headers(head);
    return admission;
  } catch (const std::exception& e) {
    return at_once(answer_to(e));
  }
}

http::Admission Server::Impl::dispatch(const http::RequestHead& head) {
  constexpr std::string_view kModel = "/v1/models/";
  const std::string& path = head.path;
  const bool gets = head.method == "GET" || head.method == "HEAD", posts = head.method == "POST";
  if (auto own = own_route(head)) return std::move(*own);
  if (options.other_routes)
    if (auto other = options.other_routes(head)) return std::move(*other);
  if (options.sessions)
    if (auto route = session_route(head)) return std::move(*route);
  if (gets && sampling) {
    if (path == "/metrics")
      return get(head, kMetricsType, [&] { return metrics_text(sampling->counts()); });
    if (path == "/v1/models") return get(head, kJsonType, [&] { return models_text(options); });
    if (path.starts_with(kModel))
      return get(head, kJsonType, [&] {
        return model_text(options, model_of(options, path.substr(kModel.size())));
      });
  }
  if (posts && sampling) {
    for (const bool chat : {false, true})
      if (path == (chat ? "/v1/chat/completions" : "/v1/completions"))
        return post(head, [this, chat](const std::shared_ptr<http::Exchange>& exchange) {
          completions.serve(exchange, chat);
        });
    if (path == "/update_weights_from_disk")
      return post(head, [this](const std::shared_ptr<http::Exchange>& exchange) {
        loads.run([this, exchange] { guard(options, *exchange, [&] { reload(*exchange); }); });
      });
  }
  return at_once(error_answer(
      404, temper::str(http::for_log(head.method), " ", http::for_log(path), kRoutes)));
}

std::optional<http::Admission> Server::Impl::own_route(const http::RequestHead& head) {
  const bool is_leader = head.path == "/heartbeat";
  if (options.on_leader && head.method == "GET" && (is_leader || head.path == "/watch")) {
    if (const auto denial = http::check_key(rules, head)) return at_once(*denial);
    return http::Admission{.answer = {},
                           .handle = [this, is_leader](std::shared_ptr<http::Exchange> exchange) {
                             heartbeats.send(exchange, is_leader);
                           }};
  }
  if (head.method != "POST") return std::nullopt;
  for (const auto& [path, route] : options.routes) {
    const bool named = head.path.starts_with(path) && head.path.size() > path.size() &&
                       head.path[path.size()] == '/';
    if (head.path != path && !named) continue;
    if (const auto denial = http::check_key(rules, head)) return at_once(*denial);
    const std::string name = named ? head.path.substr(path.size() + 1) : "";
    const auto handle = [this, name,
                         route = &route](const std::shared_ptr<http::Exchange>& exchange) {
      small.run(exchange->head().peer, [this, name, route, exchange] {
        guard(options, *exchange,
              [&] { exchange->answer({200, (*route)(name, exchange->body())}); });
        exchange->drop_body();
      });
    };
    return http::Admission{
        .answer = {}, .handle = handle, .most_body_bytes = options.most_request_bytes};
  }
  return std::nullopt;
}

std::optional<http::Admission> Server::Impl::session_route(const http::RequestHead& head) {
  constexpr std::string_view kBegin = "/v1/sessions/", kReward = "/reward";
  constexpr int64_t kMostBodyBytes = 4096;
  if (!head.path.starts_with(kBegin)) return std::nullopt;
  std::string name = head.path.substr(kBegin.size());
  const bool rewards = head.method == "POST" && name.ends_with(kReward);
  if (rewards) {
    name.resize(name.size() - kReward.size());
    http::Admission admission =
        post(head, [this, name](const std::shared_ptr<http::Exchange>& exchange) {
          small.run(exchange->head().peer, [this, name, exchange] {
            guard(options, *exchange, [&] {
              const double reward = parse_reward(exchange->body());
              options.sessions->find(name, http::owner_of(rules, exchange->head()))->reward(reward);
              exchange->answer({200, dump_json({{"id", name}, {"reward", reward}})});
            });
          });
        });
    admission.most_body_bytes = kMostBodyBytes;
    return admission;
  }
  if (head.method != "GET" && head.method != "DELETE") return std::nullopt;
  if (const auto denial = http::check_key(rules, head)) return at_once(*denial);
  return http::Admission{
      .answer = {},
      .handle = [this, name,
                 removes = head.method == "DELETE"](std::shared_ptr<http::Exchange> exchange) {
        small.run(exchange->head().peer, [this, name, removes, exchange] {
          guard(options, *exchange, [&] {
            const size_t owner = http::owner_of(rules, exchange->head());
            const std::shared_ptr<Session> session = options.sessions->find(name, owner);
            if (removes) options.sessions->remove(name, owner);
            exchange->answer(
                {200, dump_json(removes ? Json{{"deleted", true}} : session->to_json())});
          });
        });
      }};
}

http::Answer Server::Impl::health() const {
  if (sampling && sampling->refuses()) return error_answer(503, "the server is stopping");
  return {200, R"({"status":"ok"})"};
}

http::Admission Server::Impl::get(const http::RequestHead& head, const char* type,
                                  const std::function<std::string()>& text) {
  if (const auto denial = http::check_key(rules, head)) return at_once(*denial);
  return at_once(http::Answer{200, text(), type});
}

http::Admission Server::Impl::post(const http::RequestHead& head, Handler handler) {
  if (const auto denial = http::check_key(rules, head)) return at_once(*denial);
  // A small compressed body could become any amount of memory.
  if (!head.header("content-encoding").empty())
    return at_once(
        error_answer(415, "Content-Encoding: compressed request bodies are not supported"));
  if (const auto denial = http::check_json(head)) return at_once(*denial);
  return {
      .answer = {}, .handle = std::move(handler), .most_body_bytes = options.most_request_bytes};
}

// Loading weights needs a key, unless only this machine's programs are served.
void Server::Impl::reload(http::Exchange& exchange) {
  if (!options.reload) throw Refusal(404, "this server's weights cannot be changed");
  if (options.api_key.empty() && !http::is_loopback(options.host))
    throw Refusal(
        403,
        "loading weights needs an API key (--api-key-env), because this server listens on "
        "other addresses than loopback");
  const ReloadRequest asked = parse_reload(exchange.body());
  sampling->change_weights([&] { options.reload(asked.directory); }, asked.name);
  exchange.answer({200, to_text({{"success", true},
                                 {"message", "loaded " + asked.directory},
                                 {"num_paused_requests", 0}})});
}

void Server::Impl::stop() {
  heartbeats.stop();
  completions.stop();
  http.stop();
}

void Server::Impl::done(const http::RequestHead& head, int status, int64_t bytes, double seconds) {
  if (!options.access_log || head.method.empty()) return;
  char time[32];
  std::snprintf(time, sizeof time, "%.3f", seconds);
  options.access_log(
      temper::str(head.peer, " \"", http::for_log(head.method), " ", http::for_log(head.path),
                  "\" ", status ? std::to_string(status) : "-", " ", bytes, " bytes ", time, " s"));
}

Server::Server(ServerOptions options, SamplerLoop* sampling)
    : impl_(std::make_unique<Impl>(std::move(options), sampling)) {}
Server::~Server() = default;

void Server::bind() {
  ServerOptions& o = impl_->options;
  const int port = impl_->http.bind(o.host, o.port);
  check(port > 0, http::why_not_listening(o.host, o.port));
  o.port = port;
}

std::string Server::address() const {
  const ServerOptions& o = impl_->options;
  const bool v6 = o.host.find(':') != std::string::npos;
  return temper::str("http://", v6 ? "[" : "", o.host, v6 ? "]" : "", ":", o.port);
}

const std::string& Server::api_key() const { return impl_->options.api_key; }

void Server::listen() { impl_->http.run(); }
void Server::stop() { impl_->stop(); }

}  // namespace temper::serve
