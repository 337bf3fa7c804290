#include "temper/serve/server.h"

#include <httplib.h>
#include <sys/socket.h>

#include <atomic>
#include <functional>
#include <thread>

#include "temper/base/error.h"
#include "temper/dist/liveness.h"
#include "temper/serve/asked.h"
#include "temper/serve/client_socket.h"
#include "temper/serve/listen_address.h"
#include "temper/serve/reply.h"
#include "temper/serve/request.h"
#include "temper/serve/status.h"

namespace temper::serve {
namespace {

constexpr int64_t kMostSeconds = 3600;  // that a client waits for the next piece
constexpr int kMostWaitingConnections = 512;
constexpr auto kHeartbeat = std::chrono::seconds(2);  // to who attends
constexpr int kClientGone = 499;                      // nobody reads it
constexpr const char* kJson = "application/json";

class HttpServer : public httplib::Server {
 public:
  // The library's queue of connections that were not accepted yet has 5 places.
  void deepen_queue() { ::listen(svr_sock_, kMostWaitingConnections); }
};

// Two servers never share a port, as they would by the library's own options.
void reuse_address(socket_t socket) {
  const int yes = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  dist::notice_silence(socket);
}

// As long for a wrong key as for the right one.
bool same_key(const std::string& a, const std::string& b) {
  unsigned char difference = a.size() != b.size();
  for (size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<unsigned char>(a[i] ^ b[i < b.size() ? i : 0]);
  return difference == 0;
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

void answer_error(httplib::Response& response, int status, const std::string& message) {
  response.status = status;
  if (status == 429 || status == 503) response.set_header("Retry-After", "1");
  response.set_content(error_text(status, message), kJson);
}

// Calls the handler; what it throws becomes an answer.
void guard(httplib::Response& response, const std::function<void()>& handler) {
  try {
    handler();
  } catch (const Refusal& e) {
    answer_error(response, e.status, e.what());
  } catch (const TooManyRequests& e) {
    answer_error(response, 429,
                 temper::str("too many requests: the limit is ", e.limit, "; retry later"));
  } catch (const DataError& e) {
    answer_error(response, 400, e.what());
  } catch (const ConfigError& e) {
    answer_error(response, 400, e.what());
  } catch (const ServerStopped& e) {
    answer_error(response, 503, e.what());
  } catch (const std::exception& e) {
    answer_error(response, 500, e.what());
  }
}

// Waits for the next piece for as long as the client is there. False: it is gone.
bool next_piece(Ticket& ticket, Piece& piece, const std::function<bool()>& is_there) {
  using namespace std::chrono;
  const auto end = steady_clock::now() + seconds(kMostSeconds);
  while (steady_clock::now() < end) {
    if (ticket.next(piece, milliseconds(100))) return true;
    if (!is_there()) return false;
  }
  throw RunError("timeout: no token within the time limit");
}

bool send(const httplib::DataSink& sink, const std::string& text) {
  return sink.write(text.data(), text.size());
}

std::string error_event(int status, const std::string& message) {
  return "data: " + error_text(status, message) + "\n\n";
}

// One answer after its status line. What fails is an event, the last one: [DONE] follows only where
// the server ends. False: the connection ends here.
bool send_stream(Ticket& ticket, Reply& reply, const httplib::DataSink& sink) {
  try {
    for (int64_t left = reply.num_choices(); left > 0;) {
      Piece piece;
      if (!next_piece(ticket, piece, sink.is_writable) || !send(sink, reply.events(piece)))
        return false;
      left -= piece.finished;
    }
    return send(sink, reply.last_events());
  } catch (const ServerStopped& e) {
    return send(sink, error_event(503, e.what()) + kDone);
  } catch (const Error& e) {
    return send(sink, error_event(500, e.what()));
  }
}

// The status is not sent before all is there: what fails has one of its own.
void answer_whole(Ticket& ticket, Reply& reply, const ClientSocket& client,
                  httplib::Response& response) {
  std::vector<Piece> pieces(static_cast<size_t>(reply.num_choices()));
  for (size_t i = 0; i < pieces.size(); ++i) {
    Piece piece;
    if (!next_piece(ticket, piece, [&] { return client.is_open(); }))
      return answer_error(response, kClientGone, "the client is gone");
    const size_t choice = static_cast<size_t>(piece.choice);
    pieces[choice] = std::move(piece);
  }
  response.set_content(reply.whole(pieces), kJson);
}

}  // namespace

struct Server::Impl {
  Impl(ServerOptions o, SamplerLoop* s) : options(std::move(o)), sampling(s) {}

  void set_routes();
  void set_own_routes();
  bool wait_with(httplib::DataSink& sink) const;
  void check_key(const httplib::Request& request) const;
  std::string why_too_large(const httplib::Request& request) const;
  void complete(const httplib::Request& asks, bool chat, httplib::Response& response);
  void reload(const std::string& body, httplib::Response& response);

  ServerOptions options;
  SamplerLoop* sampling;
  HttpServer http;
  std::atomic<bool> stopping{false};
};

void Server::Impl::check_key(const httplib::Request& request) const {
  if (options.api_key.empty()) return;
  if (!same_key(request.get_header_value("Authorization"), "Bearer " + options.api_key))
    throw Refusal(401, "missing or invalid API key; expected the header Authorization: Bearer KEY");
}

void Server::Impl::complete(const httplib::Request& asks, bool chat, httplib::Response& response) {
  CompletionRequest request = parse_request(asks.body, chat);
  const ServedModel& model = model_of(options, request.model);
  std::vector<generate::Request> asked = requests_of(options, request, model);
  sampling->prepare(request.options);
  std::vector<std::vector<int32_t>> prompts;
  for (const generate::Request& one : asked) prompts.push_back(one.prompt);
  const ToolCallFormat calls = tool_calls_of(options, request, model);
  const std::shared_ptr<Ticket> ticket = sampling->submit(std::move(asked));
  const auto reply = std::make_shared<Reply>(std::move(request), model.name, std::move(prompts),
                                             options.format.tokenizer, ticket->weights(), calls);
  if (!reply->stream())
    return answer_whole(*ticket, *reply, {asks.remote_addr, asks.remote_port, options.port},
                        response);
  const auto provider = [ticket, reply](size_t, httplib::DataSink& sink) {
    const bool whole = send_stream(*ticket, *reply, sink);
    if (whole) sink.done();
    return whole;
  };
  response.set_chunked_content_provider("text/event-stream", provider);
}

// Who may write to a model is asked for a key, unless only this machine's programs are served.
void Server::Impl::reload(const std::string& body, httplib::Response& response) {
  if (!options.reload) throw Refusal(404, "this server's weights cannot be changed");
  if (options.api_key.empty() && !is_loopback(options.host))
    throw Refusal(
        403,
        "loading weights needs an API key (--api-key-env), because this server listens on "
        "other addresses than loopback");
  const ReloadRequest asked = parse_reload(body);
  sampling->change_weights([&] { options.reload(asked.directory); }, asked.name);
  response.set_content(to_text({{"success", true},
                                {"message", "loaded " + asked.directory},
                                {"num_paused_requests", 0}}),
                       kJson);
}

// The client's connection says whether it is there; a byte now and then says so of the server.
bool Server::Impl::wait_with(httplib::DataSink& sink) const {
  using namespace std::chrono;
  if (!stopping && !sink.write(".", 1)) return false;
  const auto until = steady_clock::now() + kHeartbeat;
  while (steady_clock::now() < until && !stopping) {
    if (!sink.is_writable()) return false;
    std::this_thread::sleep_for(milliseconds(50));
  }
  if (stopping) sink.done();
  return true;
}

// The HTTP library has a bound of its own for forms, which is the type that curl -d names.
std::string Server::Impl::why_too_large(const httplib::Request& request) const {
  constexpr const char* kForm = "application/x-www-form-urlencoded";
  const auto most = static_cast<uint64_t>(options.most_request_bytes);
  const bool fits = request.get_header_value<uint64_t>("Content-Length") <= most;
  if (fits && request.get_header_value("Content-Type").starts_with(kForm))
    return temper::str("the request is too large for its Content-Type, ", kForm,
                       "; expected Content-Type: ", kJson);
  return temper::str("the request has more than ", most, " bytes");
}

void Server::Impl::set_own_routes() {
  using httplib::Request, httplib::Response;
  for (const auto& [path, route] : options.routes)
    http.Post(path + "(?:/(.*))?", [route = &route](const Request& request, Response& response) {
      guard(response,
            [&] { response.set_content((*route)(request.matches[1].str(), request.body), kJson); });
    });
  if (!options.attended) return;
  http.Get("/(attend|watch)", [this](const Request& request, Response& response) {
    guard(response, [&] {
      check_key(request);
      const bool counts = request.matches[1] == "attend";
      if (counts) options.attended(true);
      response.set_chunked_content_provider(
          "text/plain", [this](size_t, httplib::DataSink& sink) { return wait_with(sink); },
          [this, counts](bool) {
            if (counts) options.attended(false);
          });
    });
  });
}

void Server::Impl::set_routes() {
  using httplib::Request, httplib::Response;
  // A small compressed body could become any amount of memory.
  http.set_pre_routing_handler([this](const Request& request, Response& response) {
    if (request.has_header("Content-Encoding"))
      answer_error(response, 415, "Content-Encoding: compressed request bodies are not supported");
    else if (!options.routes.empty() && request.method == "POST")
      guard(response, [&] { check_key(request); });  // before a large body is read
    return response.body.empty() ? HttpServer::HandlerResponse::Unhandled
                                 : HttpServer::HandlerResponse::Handled;
  });
  http.Get("/health", [this](const Request&, Response& response) {
    if (sampling && sampling->refuses())
      return answer_error(response, 503, "the server is stopping");
    response.set_content(R"({"status":"ok"})", kJson);
  });
  set_own_routes();
  http.set_error_handler(HttpServer::Handler([this](const Request& request, Response& response) {
    if (!response.body.empty()) return;
    const std::string message = response.status == 404
                                    ? temper::str(request.method, " ", request.path,
                                                  ": not found; routes: GET /health, /metrics, "
                                                  "/v1/models; POST /v1/completions, "
                                                  "/v1/chat/completions, /update_weights_from_disk")
                                : response.status == 413 ? why_too_large(request)
                                                         : "malformed HTTP request";
    answer_error(response, response.status, message);
  }));
  if (!sampling) return;
  const auto get = [this](const char* path, const char* type, std::function<std::string()> text) {
    http.Get(path, [this, type, text](const Request& request, Response& response) {
      guard(response, [&] {
        check_key(request);
        response.set_content(text(), type);
      });
    });
  };
  get("/metrics", "text/plain; version=0.0.4", [this] { return metrics_text(sampling->counts()); });
  get("/v1/models", kJson, [this] { return models_text(options); });
  http.Get("/v1/models/(.+)", [this](const Request& request, Response& response) {
    guard(response, [&] {
      check_key(request);
      const ServedModel& model = model_of(options, request.matches[1].str());
      response.set_content(model_text(options, model), kJson);
    });
  });
  const auto post = [this](const char* path, bool chat) {
    http.Post(path, [this, chat](const Request& request, Response& response) {
      guard(response, [&] {
        check_key(request);
        complete(request, chat, response);
      });
    });
  };
  http.Post("/update_weights_from_disk", [this](const Request& request, Response& response) {
    guard(response, [&] {
      check_key(request);
      reload(request.body, response);
    });
  });
  post("/v1/completions", false);
  post("/v1/chat/completions", true);
}

Server::Server(ServerOptions options, SamplerLoop* sampling)
    : impl_(std::make_unique<Impl>(std::move(options), sampling)) {
  HttpServer& http = impl_->http;
  const size_t threads = static_cast<size_t>(impl_->options.most_threads);
  http.new_task_queue = [threads] { return new httplib::ThreadPool(threads); };
  http.set_payload_max_length(static_cast<size_t>(impl_->options.most_request_bytes));
  http.set_tcp_nodelay(true);
  http.set_socket_options(reuse_address);
  http.set_keep_alive_max_count(1'000'000);
  http.set_keep_alive_timeout(2);  // an idle connection holds a thread, and the end waits for it
  if (!impl_->options.routes.empty()) {
    // Ranks of a run know each other, and may be slow, or stopped for a while.
    http.set_socket_options([](socket_t socket) {
      reuse_address(socket);
      dist::notice_unanswered(socket);  // who attends is sent bytes
    });
    http.set_read_timeout(kMostSeconds);
    http.set_write_timeout(kMostSeconds);
  }
  impl_->set_routes();
}

Server::~Server() = default;

void Server::bind() {
  ServerOptions& o = impl_->options;
  const int port = o.port == 0                                ? impl_->http.bind_to_any_port(o.host)
                   : impl_->http.bind_to_port(o.host, o.port) ? o.port
                                                              : -1;
  check(port > 0, why_not_listening(o.host, o.port));
  o.port = port;
  impl_->http.deepen_queue();
}

std::string Server::address() const {
  const ServerOptions& o = impl_->options;
  const bool v6 = o.host.find(':') != std::string::npos;
  return temper::str("http://", v6 ? "[" : "", o.host, v6 ? "]" : "", ":", o.port);
}

const std::string& Server::api_key() const { return impl_->options.api_key; }

void Server::listen() { impl_->http.listen_after_bind(); }
void Server::stop() {
  impl_->stopping = true;
  impl_->http.stop();
}

}  // namespace temper::serve
