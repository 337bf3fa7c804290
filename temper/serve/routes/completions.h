// POST /v1/completions and /v1/chat/completions: from a request's body to its samples.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "temper/generate/engine.h"
#include "temper/http/access.h"
#include "temper/http/server.h"
#include "temper/serve/request.h"
#include "temper/serve/sampler_loop.h"
#include "temper/serve/server.h"
#include "temper/serve/sessions/session_recorder.h"
#include "temper/serve/turn_queue.h"

namespace temper::serve {

class Completions {
 public:
  // All of them outlive it, but `small`, the threads that parse requests of up to 1 MiB: these end
  // before it. sampling: null: serve() is not called.
  Completions(const ServerOptions& options, const http::AccessRules& rules, SamplerLoop* sampling,
              TurnQueue& small);

  // Answers a request, on other threads. From any thread; waits for nothing.
  void serve(const std::shared_ptr<http::Exchange>& exchange, bool chat);
  // Requests that wait for their images or grammar are told that the server has stopped.
  void stop();

 private:
  struct Pending;

  void complete(const std::shared_ptr<http::Exchange>& exchange, bool chat);
  void submit(const std::shared_ptr<http::Exchange>& exchange, CompletionRequest request,
              Reservation reservation);
  std::vector<generate::Request> asked_by(const std::string& session, const http::RequestHead& head,
                                          const CompletionRequest& request,
                                          const ServedModel& model,
                                          std::unique_ptr<SessionRecorder>& recorder);
  void prepare(Pending& pending);
  void begin(const std::shared_ptr<Pending>& pending);
  void warn_of(const std::vector<std::string>& ignored);

  const ServerOptions& options_;
  const http::AccessRules& rules_;
  SamplerLoop* const sampling_;
  TurnQueue& small_;
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::set<std::string> warned_;
  // Members are destroyed before those that they use. Threads for the parsing of large requests,
  // one at a time, as each may take many times its size, for images, for grammars, of which one may
  // take long to compile, and for answers, which never wait. Clients take turns, by their address;
  // the threads for grammars and answers are never all one client's.
  TurnQueue answers_{4, 2}, grammars_{4, 1}, images_{2, 1}, large_;
};

}  // namespace temper::serve
