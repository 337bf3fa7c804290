// The route /top_tokens (top_tokens.h) of a server: the model that samples is a teacher, too.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "temper/http/access.h"
#include "temper/http/server.h"
#include "temper/models/model.h"
#include "temper/serve/sampler_loop.h"
#include "temper/serve/turn_queue.h"

namespace temper::distill {

struct TeacherRouteOptions {
  http::AccessRules rules;
  std::string model, tokens_digest;  // what GET says; digest_of_tokens(), empty: no tokenizer
  int64_t most_positions = 0;        // of a row
  int64_t most_request_bytes = int64_t{64} << 20;
};

class TeacherRoute {
 public:
  // `model` and `sampling`, which samples from it, outlive this.
  TeacherRoute(models::CausalLM& model, serve::SamplerLoop& sampling, TeacherRouteOptions options);

  // What to do with a request; nothing where its path is another. From any thread. Requests count
  // among those that the server takes at once (serve::SamplerLoop::reserve).
  std::optional<http::Admission> admit(const http::RequestHead& head);
  // Answers one request; false: none waits. For the thread that samples, between its steps.
  bool work();
  // From now on all requests are refused, waiting ones too (503). From any thread.
  void close();

 private:
  using Job = std::function<void()>;
  void take(const std::shared_ptr<http::Exchange>& exchange);

  models::CausalLM& model_;
  serve::SamplerLoop& sampling_;
  const TeacherRouteOptions options_;
  std::mutex mutex_;
  std::deque<Job> jobs_;
  std::atomic<bool> closed_{false};
  serve::TurnQueue parsing_{2};  // last: its jobs use the others
};

}  // namespace temper::distill
