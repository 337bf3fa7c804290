#include "temper/distill/teacher_route.h"

#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/json.h"
#include "temper/distill/top_tokens.h"
#include "temper/serve/answering.h"

namespace temper::distill {
namespace {

http::Admission answered(http::Answer answer) {
  return {.answer = std::move(answer), .handle = {}};
}

// What `handler` throws becomes the answer.
void answer_errors(http::Exchange& exchange, const std::function<void()>& handler) {
  try {
    handler();
  } catch (const serve::TooManyRequests& e) {
    exchange.answer(serve::error_answer(
        429, str("too many requests: the limit is ", e.limit, "; retry later")));
  } catch (const std::exception& e) {
    exchange.answer(serve::answer_to(e));
  }
}

}  // namespace

TeacherRoute::TeacherRoute(models::CausalLM& model, serve::SamplerLoop& sampling,
                           TeacherRouteOptions options)
    : model_(model), sampling_(sampling), options_(std::move(options)) {}

std::optional<http::Admission> TeacherRoute::admit(const http::RequestHead& head) {
  if (head.path != kTopTokens || (head.method != "GET" && head.method != "POST")) return {};
  for (const auto& denial :
       {http::check_key(options_.rules, head),
        head.method == "POST" ? http::check_json(head) : std::optional<http::Denial>()})
    if (denial) return answered(serve::error_answer(denial->status, denial->message));
  if (head.method == "GET")
    return answered({200, dump_json({{"model", options_.model},
                                     {"vocab_size", model_.vocab_size},
                                     {"tokens_digest", options_.tokens_digest}})});
  return http::Admission{.answer = {},
                         .handle =
                             [this](std::shared_ptr<http::Exchange> exchange) {
                               parsing_.run(exchange->head().peer, [this, exchange] {
                                 answer_errors(*exchange, [&] { take(exchange); });
                               });
                             },
                         .most_body_bytes = options_.most_request_bytes};
}

void TeacherRoute::take(const std::shared_ptr<http::Exchange>& exchange) {
  if (exchange->is_gone()) return;
  const serve::Reservation reservation = sampling_.reserve(exchange->head().peer);
  const auto ask = std::make_shared<const TopTokensAsk>(
      parse_top_tokens(exchange->body(), model_.vocab_size, options_.most_positions));
  exchange->drop_body();
  const Job job = [this, exchange, ask, reservation] {
    if (exchange->is_gone()) return;
    answer_errors(*exchange, [&] {
      check<serve::ServerStopped>(!closed_, "the server has stopped; retry later");
      exchange->answer(
          {200, top_tokens_bytes(likeliest_of(model_, *ask)), "application/octet-stream"});
    });
  };
  {
    const std::lock_guard lock(mutex_);
    check<serve::ServerStopped>(!closed_, "the server has stopped; retry later");
    jobs_.push_back(job);
  }
  sampling_.wake();
}

bool TeacherRoute::work() {
  Job job;
  {
    const std::lock_guard lock(mutex_);
    if (jobs_.empty()) return false;
    job = std::move(jobs_.front());
    jobs_.pop_front();
  }
  job();
  return true;
}

void TeacherRoute::close() {
  std::deque<Job> waiting;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    waiting.swap(jobs_);
  }
  for (const Job& job : waiting) job();
}

}  // namespace temper::distill
