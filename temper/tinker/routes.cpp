#include "temper/tinker/routes.h"

#include <algorithm>
#include <map>

#include "temper/base/ascii.h"
#include "temper/base/error.h"
#include "temper/base/sha256.h"
#include "temper/http/access.h"
#include "temper/http/text.h"
#include "temper/serve/answering.h"
#include "temper/serve/asked.h"
#include "temper/tinker/service/service_fields.h"
#include "temper/tinker/wire.h"

namespace temper::tinker {
namespace {

constexpr std::string_view kPrefix = "/api/v1/";
constexpr const char* kProtobufBody = "application/x-protobuf";
constexpr size_t kLargeBody = size_t{1} << 20;

using http::Admission;
using http::Answer;
using serve::error_answer;

http::Admission at_once(http::Answer answer) { return {.answer = std::move(answer), .handle = {}}; }

std::string content_type(const http::RequestHead& head) {
  std::string type = ascii_lower(head.header("content-type"));
  type = type.substr(0, type.find(';'));
  while (type.ends_with(' ')) type.pop_back();
  return type;
}

// A result that is kept compressed, as the client reads it.
http::Answer readable(http::Answer answer, const http::RequestHead& head) try {
  const auto is_encoding = [](const auto& header) { return header.first == "Content-Encoding"; };
  const auto encoding = std::ranges::find_if(answer.headers, is_encoding);
  if (encoding == answer.headers.end()) return answer;
  const std::string accepted = ascii_lower(head.header("accept-encoding"));
  for (size_t at = 0; at < accepted.size();) {
    const size_t end = std::min(accepted.find(',', at), accepted.size());
    std::string_view one = std::string_view(accepted).substr(at, end - at);
    while (one.starts_with(' ')) one.remove_prefix(1);
    while (one.ends_with(' ')) one.remove_suffix(1);
    if (one == "zstd") return answer;
    at = end + 1;
  }
  answer.body = decompress_zstd(answer.body, SIZE_MAX / 2);
  answer.headers.erase(encoding);
  return answer;
} catch (const std::exception& e) {
  return error_answer(500, e.what());
}

// As X-API-Key, or as a Bearer token.
std::string_view sent_key(const http::RequestHead& head) {
  constexpr std::string_view kBearer = "Bearer ";
  const std::string_view key = head.header("x-api-key"), bearer = head.header("authorization");
  return key.empty() && bearer.starts_with(kBearer) ? bearer.substr(kBearer.size()) : key;
}

// The refusal of a request (401, 403) whose key is none of the server's.
std::optional<http::Answer> denial(const CallerRules& rules, const http::RequestHead& head) {
  const std::string_view key = sent_key(head);
  if (!rules.api_key.empty()) {
    if (http::has_key(rules.api_key, key)) return std::nullopt;
    return error_answer(401,
                        "missing or invalid API key; expected the server's in X-API-Key "
                        "(TINKER_API_KEY)");
  }
  if (!http::is_loopback(rules.host))
    return error_answer(403,
                        "the Tinker API needs a key (--api-key-env), because this server "
                        "listens on other addresses than loopback");
  if (key.starts_with("tml-")) return std::nullopt;
  return error_answer(401,
                      "missing API key; expected one that begins with tml- in X-API-Key "
                      "(TINKER_API_KEY)");
}

// The name of whoever has the request's key: its SHA-256. All that a client makes is its owner's.
std::string owner_of(const http::RequestHead& head) { return sha256_hex(sent_key(head)); }

}  // namespace

Routes::Routes(Service& service, RouteOptions options)
    : service_(service), options_(std::move(options)), clock_([this] {
        std::unique_lock lock(mutex_);
        while (!ended_.wait_for(lock, std::chrono::milliseconds(200), [this] { return ends_; })) {
          lock.unlock();
          service_.tick();
          lock.lock();
        }
      }) {}

Routes::~Routes() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  ended_.notify_all();
  clock_.join();
}

std::optional<http::Admission> Routes::admit(const http::RequestHead& head) {
  if (!head.path.starts_with(kPrefix)) return std::nullopt;
  const std::string path = head.path.substr(kPrefix.size());
  const bool gets = head.method == "GET" || head.method == "HEAD";
  if (path == "healthz" && gets) return at_once({200, R"({"status":"ok"})"});
  if (const auto denied = denial(options_.callers, head)) return at_once(*denied);
  if (auto found = route(head, path)) return found;
  if (const std::string allowed = allowed_methods(head, path); !allowed.empty()) {
    http::Answer answer = error_answer(405, str(http::for_log(head.method), " ",
                                                http::for_log(head.path), ": expected ", allowed));
    answer.headers.emplace_back("Allow", allowed);
    return at_once(std::move(answer));
  }
  const std::string what = http::for_log(head.method) + " " + http::for_log(head.path);
  if (path == "forward" || path == "auth/token" || path == "retrieve_futures" ||
      path == "join_sampling_session" || path == "create_custom_loss" || path == "copy_weights" ||
      path == "save_weights_external")
    return at_once(error_answer(
        404, what + ": not offered; this server speaks to the SDK 0.38 with its default settings. "
                    "Saved weights are PEFT directories below --state-dir"));
  return at_once(error_answer(404, what + ": not found"));
}

std::optional<http::Admission> Routes::route(const http::RequestHead& head,
                                             const std::string& path) {
  if (path.starts_with("training_runs/"))
    if (auto found = run_route(head, path.substr(14))) return found;
  if (head.method == "POST") return post_route(head, path);
  if (head.method == "GET" || head.method == "HEAD") return get_route(head, path);
  return std::nullopt;
}

// The methods that the path has, "GET, HEAD"; empty: it is none of the API's.
std::string Routes::allowed_methods(http::RequestHead head, const std::string& path) {
  if (path == "healthz") return "GET, HEAD";
  std::string methods;
  for (const char* method : {"GET", "HEAD", "POST", "PUT", "DELETE"}) {
    head.method = method;
    if (route(head, path)) methods += (methods.empty() ? "" : ", ") + head.method;
  }
  return methods;
}

void Routes::answer(const std::shared_ptr<http::Exchange>& exchange, const Respond& respond) try {
  try {
    exchange->answer({200, dump_json(respond(owner_of(exchange->head()), *exchange))});
  } catch (const OrderedJobs::Refused& e) {
    exchange->answer(e.answer);
  } catch (const serve::TooManyRequests& e) {
    exchange->answer(error_answer(
        429, str("too many requests: the limit is ", e.limit,
                 e.of_bytes ? " bytes of images (--max-waiting-bytes)" : "", "; retry later")));
  } catch (const std::exception& e) {
    exchange->answer(serve::answer_to(e));
  }
} catch (...) {
  exchange->end_stream(false);
}

http::Admission Routes::post(const http::RequestHead& head, Respond respond) {
  const std::string type = content_type(head);
  const bool is_protobuf = type == kProtobufBody;
  if (!is_protobuf) {
    if (const auto denied = http::check_json(head))
      return at_once(error_answer(denied->status, denied->message));
    if (!head.header("content-encoding").empty())
      return at_once(error_answer(415, "Content-Encoding: only protobuf bodies may be compressed"));
  }
  const Handle handle = [this, respond = std::move(respond)](
                            const std::shared_ptr<http::Exchange>& exchange) {
    serve::TurnQueue& queue = exchange->body().size() > kLargeBody ? large_ : small_;
    queue.run(owner_of(exchange->head()), [this, respond, exchange] { answer(exchange, respond); });
  };
  return {.answer = {}, .handle = handle, .most_body_bytes = options_.most_request_bytes};
}

http::Admission Routes::get(Respond respond) {
  const Handle handle =
      [this, respond = std::move(respond)](const std::shared_ptr<http::Exchange>& exchange) {
        small_.run(owner_of(exchange->head()),
                   [this, respond, exchange] { answer(exchange, respond); });
      };
  return {.answer = {}, .handle = handle};
}

Json Routes::forward_backward(const std::string& owner, http::Exchange& exchange) {
  const http::RequestHead& head = exchange.head();
  if (content_type(head) != kProtobufBody)
    throw serve::Refusal(415, "forward_backward: found Content-Type " +
                                  http::for_log(content_type(head)) +
                                  ", expected application/x-protobuf, as the SDK sends it from "
                                  "0.25 on");
  const std::string encoding = ascii_lower(head.header("content-encoding"));
  if (!encoding.empty() && encoding != "zstd" && encoding != "identity")
    throw serve::Refusal(415, "Content-Encoding: expected zstd or none");
  std::string plain;
  if (encoding == "zstd")
    plain = decompress_zstd(exchange.body(), static_cast<size_t>(options_.most_request_bytes));
  const std::string& body = encoding == "zstd" ? plain : exchange.body();
  ForwardBackwardRequest request;
  try {
    request = read_forward_backward(body);
  } catch (const DataError& e) {
    if (const auto of = read_forward_backward_head(body)) service_.refuse_unread(owner, *of, e);
    throw;
  }
  return service_.forward_backward(owner, std::move(request));
}

std::optional<http::Admission> Routes::post_route(const http::RequestHead& head,
                                                  const std::string& path) {
  using Call = Json (Service::*)(const std::string&, const Json&);
  static const std::map<std::string, Call> kCalls{
      {"session_heartbeat", &Service::heartbeat},
      {"create_model", &Service::create_model},
      {"get_info", &Service::get_info},
      {"unload_model", &Service::unload_model},
      {"optim_step", &Service::optim_step},
      {"save_weights", &Service::save_weights},
      {"load_weights", &Service::load_weights},
      {"save_weights_for_sampler", &Service::save_weights_for_sampler},
      {"create_sampling_session", &Service::create_sampling_session},
      {"asample", &Service::sample},
      {"cancel_future", &Service::cancel},
      {"weights_info", &Service::weights_info},
  };
  if (const auto found = kCalls.find(path); found != kCalls.end())
    return post(head,
                [this, call = found->second](const std::string& owner, http::Exchange& exchange) {
                  return (service_.*call)(owner, body_of(exchange));
                });
  if (path == "forward_backward")
    return post(head, [this](const std::string& owner, http::Exchange& exchange) {
      return forward_backward(owner, exchange);
    });
  if (path == "create_session")
    return post(head, [this](const std::string& owner, http::Exchange& exchange) {
      return service_.create_session(owner, body_of(exchange),
                                     std::string(exchange.head().header("x-idempotency-key")));
    });
  if (path == "client/config")
    return post(head, [](const std::string&, http::Exchange&) { return Json::object(); });
  if (path == "telemetry")
    return post(head,
                [](const std::string&, http::Exchange&) { return Json{{"status", "accepted"}}; });
  if (path.starts_with("sessions/") && path.ends_with("/finish"))
    return post(head, [this, id = path.substr(9, path.size() - 16)](const std::string& owner,
                                                                    http::Exchange& exchange) {
      return service_.finish_session(owner, id, body_of(exchange));
    });
  if (path != "retrieve_future") return std::nullopt;
  // Waits without a thread: a client may ask long before there is an answer.
  http::Admission admission = post(head, {});
  if (admission.answer) return admission;
  admission.handle = [this](std::shared_ptr<http::Exchange> exchange) {
    try {
      const Json body = body_of(*exchange);
      serve::Members members(body);
      const std::string future = members.text("request_id");
      check_named("request_id", future, "the request that is waited for");
      service_.futures().retrieve(owner_of(exchange->head()), future,
                                  [exchange](http::Answer answer) {
                                    exchange->answer(readable(std::move(answer), exchange->head()));
                                  });
    } catch (const std::exception& e) {
      exchange->answer(serve::answer_to(e));
    }
  };
  admission.most_body_bytes = static_cast<int64_t>(kLargeBody);
  return admission;
}

}  // namespace temper::tinker
