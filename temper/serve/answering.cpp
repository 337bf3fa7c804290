#include "temper/serve/answering.h"

#include "temper/base/error.h"
#include "temper/serve/asked.h"
#include "temper/serve/reply_json.h"

namespace temper::serve {
namespace {

std::string error_event(int status, const std::string& message) {
  return "data: " + error_text(status, message) + "\n\n";
}

}  // namespace

http::Answer error_answer(int status, const std::string& message) {
  http::Answer out{status, error_text(status, message)};
  if (status == 429 || status == 503) out.headers.emplace_back("Retry-After", "1");
  if (status == 401) out.headers.emplace_back("WWW-Authenticate", "Bearer");
  return out;
}

http::Answer answer_to(const std::exception& e) {
  const bool wrong = dynamic_cast<const DataError*>(&e) || dynamic_cast<const ConfigError*>(&e);
  const auto* const refusal = dynamic_cast<const Refusal*>(&e);
  const int status = refusal                                  ? refusal->status
                     : wrong                                  ? 400
                     : dynamic_cast<const ServerStopped*>(&e) ? 503
                                                              : 500;
  return error_answer(status, e.what());
}

Answering::Answering(TurnQueue& workers, std::shared_ptr<http::Exchange> exchange,
                     std::shared_ptr<Ticket> ticket, std::unique_ptr<Reply> reply,
                     std::unique_ptr<SessionRecorder> recorder)
    : workers_(workers),
      exchange_(std::move(exchange)),
      ticket_(std::move(ticket)),
      reply_(std::move(reply)),
      recorder_(std::move(recorder)),
      left_(reply_->num_choices()) {
  if (!reply_->stream()) pieces_.resize(static_cast<size_t>(left_));
}

void Answering::start() {
  if (reply_->stream()) exchange_->begin_stream("text/event-stream");
  ticket_->on_arrival([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->wake();
  });
  exchange_->on_change([self = shared_from_this()] { self->wake(); });
  wake();
}

// At most one worker renders an answer at a time; what arrives meanwhile makes it run again.
void Answering::wake() {
  if (wakes_.fetch_add(1) == 0)
    workers_.run(exchange_->head().peer, [self = shared_from_this()] { self->work(); });
}

void Answering::work() {
  for (int seen = wakes_; seen > 0; seen = wakes_.fetch_sub(seen) - seen) go_on();
}

void Answering::go_on() {
  if (!ticket_) return;
  if (exchange_->is_gone()) return finish();
  const bool streams = reply_->stream();
  try {
    streams ? stream() : collect();
    return;
  } catch (const ServerStopped& e) {
    // [DONE] follows only where the server ends.
    if (streams) exchange_->send(error_event(503, e.what()) + kDone);
    if (!streams) exchange_->answer(answer_to(e));
  } catch (const std::exception& e) {
    if (streams) exchange_->send(error_event(500, e.what()));
    if (!streams) exchange_->answer(answer_to(e));
  }
  if (streams) exchange_->end_stream(true);
  finish();
}

void Answering::stream() {
  for (Piece piece; !exchange_->is_full() && ticket_->take(piece); piece = Piece()) {
    left_ -= piece.finished;
    if (recorder_) recorder_->add(piece);
    exchange_->send(reply_->events(std::move(piece)));
    if (left_ > 0) continue;
    recorder_.reset();
    exchange_->send(reply_->last_events());
    exchange_->end_stream(true);
    return finish();
  }
}

// The status line is sent once the answer is complete: a failure has a status of its own.
void Answering::collect() {
  for (Piece piece; ticket_->take(piece); piece = Piece()) {
    const auto choice = static_cast<size_t>(piece.choice);
    if (recorder_) recorder_->add(piece);
    pieces_[choice] = std::move(piece);
    if (--left_ > 0) continue;
    recorder_.reset();  // the client's next request may be there before this function ends
    exchange_->answer({200, reply_->whole(pieces_)});
    return finish();
  }
}

void Answering::finish() {
  ticket_.reset();
  reply_.reset();
  recorder_.reset();
  pieces_.clear();
  exchange_->on_change(nullptr);
}

}  // namespace temper::serve
