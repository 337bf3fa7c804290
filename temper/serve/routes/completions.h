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
  // Options, rules and sampling outlive it; sampling may be null where serve() is not called.
  // `small`: threads that parse bodies of up to 1 MiB, which have ended before it is destroyed.
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
  // Clients take turns, by their address: {threads, most of them for one client}. Members are
  // destroyed before those that they use.
  TurnQueue answers_{4, 2};   // which never wait
  TurnQueue grammars_{4, 1};  // of which one may take long to compile
  TurnQueue images_{2, 1};    // decoded
  TurnQueue large_;           // large bodies, one at a time: parsing may take many times the size
};

}  // namespace temper::serve
