// The role `rollout` on a rank of its own: completions for the ranks that train, with the weights
// that they send.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "temper/serve/sampler_loop.h"
#include "temper/train/policy.h"

namespace temper::roles {

// Weights are kept from when they come until somebody asks for completions of theirs. Versions are
// asked for in order: while one samples, none of the next is asked for.
class Sampling {
 public:
  // options: how the run samples, but for a request's own max_new_tokens. The policy outlives it.
  Sampling(train::Policy& policy, generate::GenerationOptions options,
           const generate::EngineOptions& engine);

  // Answers to requests (wire.h), on threads of the server's. Throw DataError, RunError.
  std::string sample(const std::string& text);
  std::string take_weights(const std::string& version, const std::string& bytes);

  // Samples on this thread until `stop`; whoever waits then gets a RunError.
  void run(const std::function<bool()>& stop);

 private:
  void use(int64_t version);

  train::Policy& policy_;
  const generate::GenerationOptions options_;
  serve::SamplerLoop loop_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::map<int64_t, std::shared_ptr<const std::string>> waiting_;  // weights, by version
  int64_t version_ = -1;                                           // that samples
  bool ended_ = false;
};

}  // namespace temper::roles
