#include "temper/serve/routes/completions.h"

#include <cstddef>
#include <cstdint>
#include <utility>

#include "temper/base/error.h"
#include "temper/base/json.h"
#include "temper/http/text.h"
#include "temper/serve/answering.h"
#include "temper/serve/asked.h"
#include "temper/serve/forced_calls.h"
#include "temper/serve/reply.h"
#include "temper/serve/routes/guard.h"
#include "temper/serve/sessions/sessions.h"

namespace temper::serve {
namespace {

constexpr size_t kLargeBody = size_t{1} << 20;  // bytes that one thread parses at a time
constexpr size_t kMostWarnings = 100;

}  // namespace

// A request that was parsed, until it is sampled.
struct Completions::Pending {
  std::shared_ptr<http::Exchange> exchange;
  const ServedModel* model;
  ToolCallFormat calls;
  CompletionRequest request;
  std::vector<generate::Request> asked;
  Reservation reservation;
  std::unique_ptr<SessionRecorder> recorder;  // null: the request names no session
};

Completions::Completions(const ServerOptions& options, const http::AccessRules& rules,
                         SamplerLoop* sampling, TurnQueue& small)
    : options_(options), rules_(rules), sampling_(sampling), small_(small) {}

void Completions::serve(const std::shared_ptr<http::Exchange>& exchange, bool chat) {
  const bool is_large = exchange->body().size() > kLargeBody;
  (is_large ? large_ : small_).run(exchange->head().peer, [this, exchange, chat] {
    complete(exchange, chat);
  });
}

void Completions::stop() {
  stopping_ = true;
  // What waits for its grammar is told now: those that are being compiled may take seconds more.
  for (TurnQueue* queue : {&grammars_, &images_})
    for (auto& job : queue->take_waiting()) answers_.run("", std::move(job));
}

void Completions::complete(const std::shared_ptr<http::Exchange>& exchange, bool chat) {
  if (exchange->is_gone()) return;
  guard(options_, *exchange, [&] {
    CompletionRequest request = parse_request(exchange->body(), chat, options_.defaults);
    Reservation reservation = sampling_->reserve(exchange->head().peer);
    reservation.add(sampling_->hold(request.image_bytes, exchange->head().peer));
    exchange->drop_body();
    warn_of(request.ignored);
    if (!request.has_images) return submit(exchange, std::move(request), std::move(reservation));
    const auto waiting = std::make_shared<std::pair<CompletionRequest, Reservation>>(
        std::move(request), std::move(reservation));
    images_.run(exchange->head().peer, [this, exchange, waiting] {
      if (exchange->is_gone()) return;
      guard(options_, *exchange, [&] {
        check<ServerStopped>(!stopping_, "the server has stopped; retry later");
        submit(exchange, std::move(waiting->first), std::move(waiting->second));
      });
    });
  });
}

void Completions::submit(const std::shared_ptr<http::Exchange>& exchange, CompletionRequest request,
                         Reservation reservation) {
  const ServedModel& model = model_of(options_, request.model);
  const ToolCallFormat calls = tool_calls_of(options_, request, model);
  std::unique_ptr<SessionRecorder> recorder;
  const std::string session = options_.sessions ? session_name(rules_, exchange->head()) : "";
  std::vector<generate::Request> asked =
      session.empty() && !(options_.sessions && options_.sessions->required())
          ? requests_of(options_, request, model)
          : asked_by(session, exchange->head(), request, model, recorder);
  if (request.has_images) request.prompts = {Json::array()};  // `asked` has them, decoded
  const bool has_form = request.options.grammar || request.tool_choice != ToolChoice::kAuto;
  const auto pending = std::make_shared<Pending>(
      Pending{exchange, &model, calls, std::move(request), std::move(asked), std::move(reservation),
              std::move(recorder)});
  if (!has_form) return begin(pending);
  grammars_.run(exchange->head().peer, [this, pending] {
    if (pending->exchange->is_gone()) return;
    guard(options_, *pending->exchange, [&] {
      check<ServerStopped>(!stopping_, "the server has stopped; retry later");
      prepare(*pending);
      begin(pending);
    });
  });
}

std::vector<generate::Request> Completions::asked_by(const std::string& session,
                                                     const http::RequestHead& head,
                                                     const CompletionRequest& request,
                                                     const ServedModel& model,
                                                     std::unique_ptr<SessionRecorder>& recorder) {
  const std::shared_ptr<Session> recording =
      options_.sessions->for_completions(session, http::owner_of(rules_, head), head.peer);
  const data::TextFormat format = format_of(options_, request, model);
  check_images(options_, format, request);
  Session::Begun begun = recording->begin(request, format, tool_calls_of(options_, request, model),
                                          request.seed.value_or(random_seed()),
                                          options_.most_positions, model.adapter);
  recorder = std::make_unique<SessionRecorder>(recording, begun.turn, request.num_samples);
  std::vector<generate::Request> asked;
  asked.push_back(std::move(begun.asked));
  return asked;
}

void Completions::prepare(Pending& pending) {
  CompletionRequest& request = pending.request;
  if (request.tool_choice != ToolChoice::kAuto) {
    request.options.grammar = spec_of(forced_calls(request, pending.calls));
    for (generate::Request& one : pending.asked) one.options.grammar = request.options.grammar;
  }
  sampling_->prepare(request.options);
}

// While the weights are being changed the request waits without a thread, and begins again.
void Completions::begin(const std::shared_ptr<Pending>& pending) {
  std::vector<std::vector<int32_t>> prompts;
  for (const generate::Request& one : pending->asked) prompts.push_back(one.prompt);
  const auto again = [this, pending] {
    if (!pending->exchange->is_gone()) guard(options_, *pending->exchange, [&] { begin(pending); });
  };
  std::shared_ptr<Ticket> ticket = sampling_->submit(
      pending->asked, pending->reservation,
      [this, pending, again] { small_.run(pending->exchange->head().peer, again); });
  if (!ticket) return;
  const ServedModel& model = *pending->model;
  const ReasoningMarks reasoning = reasoning_of(options_, pending->request, model);
  auto reply = std::make_unique<Reply>(std::move(pending->request), model.name, std::move(prompts),
                                       options_.format.tokenizer, ticket->weights(), pending->calls,
                                       reasoning);
  if (pending->recorder)
    pending->recorder->set_form(reply->request(), options_.format.tokenizer, pending->calls,
                                reply->reasoning_at_beginning(), ticket->weights());
  std::make_shared<Answering>(answers_, pending->exchange, std::move(ticket), std::move(reply),
                              std::move(pending->recorder))
      ->start();
}

void Completions::warn_of(const std::vector<std::string>& ignored) {
  if (!options_.warn) return;
  for (const std::string& key : ignored) {
    const std::string name = http::for_log(key);
    const std::lock_guard lock(mutex_);
    if (warned_.size() < kMostWarnings && warned_.insert(name).second)
      options_.warn("requests have the parameter `" + name + "`, which this server ignores");
  }
}

}  // namespace temper::serve
