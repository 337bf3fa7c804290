// Brings what the engine samples for one request to its client.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "temper/serve/http_server.h"
#include "temper/serve/reply.h"
#include "temper/serve/sampler_loop.h"
#include "temper/serve/workers.h"

namespace temper::serve {

// Answers with what a handler throws: {"error": ..} with the status that it has.
Answer error_answer(int status, const std::string& message);
Answer answer_to(const std::exception& e);

// Lives until the answer has ended or the client is gone, which cancels what it asked for. A client
// that does not read is not written for: its pieces wait as tokens.
class Answering : public std::enable_shared_from_this<Answering> {
 public:
  // `workers` outlives it.
  Answering(Workers& workers, std::shared_ptr<Exchange> exchange, std::shared_ptr<Ticket> ticket,
            std::unique_ptr<Reply> reply);
  void start();

 private:
  void wake();
  void work();
  void go_on();
  void stream();
  void collect();
  void finish();

  Workers& workers_;
  const std::shared_ptr<Exchange> exchange_;
  std::shared_ptr<Ticket> ticket_;  // null: it is done
  std::unique_ptr<Reply> reply_;
  std::vector<Piece> pieces_;  // by choice, of an answer that is not streamed
  int64_t left_;               // choices that are not finished
  std::atomic<int> wakes_{0};
};

}  // namespace temper::serve
