// The role `rollout` on a rank of its own: completions for the ranks that train, with the weights
// that they send.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "temper/generate/engine.h"
#include "temper/train/policy.h"
#include "temper/workers/wire.h"

namespace temper::workers {

// All members are called by one thread, except where they say otherwise. While completions of one
// version are being sampled, none of another version are begun.
class Sampling {
 public:
  // options: the run's; a request brings its own max_new_tokens. behind: how many versions a rank
  // that trains may be behind another (rl.max_staleness). The policy outlives it.
  Sampling(train::Policy& policy, generate::GenerationOptions options,
           const generate::EngineOptions& engine, int64_t behind = 0);

  // Parses the text of a request. From any thread. Throws DataError.
  SampleAsk parse(const std::string& text) const { return parse_sample(text, options_); }
  // Keeps weights until those of `behind` versions later sample. From any thread. Throws DataError.
  void take_weights(const std::string& version, const std::string& bytes);
  // Whether a request for the version can be done: also one that is too old, which is an error.
  bool is_ready(int64_t version);
  bool has_weights(int64_t version);

  // The model computes with the weights of a version from here on: waits for them. Throws RunError
  // once `stop` says that they will not come.
  void use(int64_t version, const std::function<bool()>& stop);
  int64_t version() const { return version_; }

  // One of these is called once for each request, by step().
  struct Callbacks {
    std::function<void(const std::string& completions)> done;
    std::function<void(const std::string& why)> failed;
  };
  // Throws DataError, ConfigError.
  void begin(SampleAsk ask, Callbacks callbacks);
  // One pass of the engine. False: nothing is left to do.
  bool step() { return engine_.step({}); }

 private:
  train::Policy& policy_;
  const generate::GenerationOptions options_;
  generate::Engine engine_;
  const int64_t behind_;
  int64_t version_ = -1;  // version of the weights that sample
  int64_t newest_ = -1;   // the newest version that has sampled
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::map<int64_t, std::shared_ptr<const std::string>> weights_;  // by version
};

}  // namespace temper::workers
