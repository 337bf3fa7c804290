// Turns what the engine samples for one request into the answer to its client.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "temper/http/server.h"
#include "temper/serve/reply.h"
#include "temper/serve/sampler_loop.h"
#include "temper/serve/sessions/session_recorder.h"
#include "temper/serve/turn_queue.h"

namespace temper::serve {

// The answer {"error": ..} for a status and message, or for an exception that a handler threw.
http::Answer error_answer(int status, const std::string& message);
http::Answer answer_to(const std::exception& e);

// Lives until the answer has ended or the client has disconnected, which cancels its requests.
// While a client does not read, nothing is rendered for it: its pieces wait as tokens.
class Answering : public std::enable_shared_from_this<Answering> {
 public:
  // `workers` outlives it. recorder: null for a request without a session.
  Answering(TurnQueue& workers, std::shared_ptr<http::Exchange> exchange,
            std::shared_ptr<Ticket> ticket, std::unique_ptr<Reply> reply,
            std::unique_ptr<SessionRecorder> recorder = nullptr);
  void start();

 private:
  void wake();
  void work();
  void go_on();
  void stream();
  void collect();
  void finish();

  TurnQueue& workers_;
  const std::shared_ptr<http::Exchange> exchange_;
  std::shared_ptr<Ticket> ticket_;  // null: the answer is complete
  std::unique_ptr<Reply> reply_;
  std::unique_ptr<SessionRecorder> recorder_;  // null: the request has no session
  std::vector<Piece> pieces_;                  // by choice, of an answer that is not streamed
  int64_t left_;                               // choices that are not finished
  std::atomic<int> wakes_{0};
};

}  // namespace temper::serve
