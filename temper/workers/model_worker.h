// What a rank with roles of its own does.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "temper/dist/group.h"
#include "temper/generate/engine.h"
#include "temper/train/roles/policy.h"
#include "temper/workers/rank_server.h"
#include "temper/workers/served_reference.h"
#include "temper/workers/wire.h"

namespace temper::workers {

// The role `rollout` on a rank of its own: completions for the ranks that train, with the weights
// that they send. All members are called by one thread, except where they say otherwise. While
// completions of one version are being sampled, none of another version are begun.
class Sampling {
 public:
  // options: the run's; a request brings its own max_new_tokens. behind: how many versions a rank
  // that trains may be behind another (rl.max_staleness). images: how the policy reads them; null:
  // it sees none. The policy outlives it.
  Sampling(train::Policy& policy, generate::GenerationOptions options,
           const generate::EngineOptions& engine, int64_t behind = 0,
           std::shared_ptr<const data::ImageFormat> images = nullptr);

  // Parses the text of a request. From any thread. Throws DataError.
  SampleAsk parse(const std::string& text) const {
    return parse_sample(text, options_, images_.get());
  }
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
  const std::shared_ptr<const data::ImageFormat> images_;
  int64_t version_ = -1;  // version of the weights that sample
  int64_t newest_ = -1;   // the newest version that has sampled
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::map<int64_t, std::shared_ptr<const std::string>> weights_;  // by version
};

// Carries out the requests to a rank with roles of its own, on the one thread that uses its model.
// Where ranks hold the model together (dist::RolesSection::tensor) the first of them gets the
// requests and hands each one on, so that all of them do the same in the same order.
class ModelWorker {
 public:
  // group: the ranks that hold the model together, or this one alone. sampling, scoring: null where
  // this rank does not have the role.
  ModelWorker(std::shared_ptr<dist::Group> group, std::unique_ptr<Sampling> sampling,
              std::unique_ptr<Scoring> scoring);

  // Answers to requests (wire.h). From any thread: they wait until run() has carried out the
  // request. Throws DataError, and RunError where this rank ends before.
  std::string sample(const std::string& text);
  std::string score(const std::string& text);
  std::string take_weights(const std::string& version, const std::string& bytes);

  // Carries out requests until `stop`, or until the first rank of the group ends; callers that
  // still wait get a RunError. Throws RunError where another rank of the group is lost.
  void run(const std::function<bool()>& stop);

 private:
  struct Request;
  using Requests = std::vector<std::shared_ptr<Request>>;
  std::string ask(const std::shared_ptr<Request>& request);
  // Takes all waiting requests that can be carried out now, in order. `sampling`: completions are
  // being sampled.
  Requests take(bool sampling);
  Requests wait(bool sampling, const std::function<bool()>& stop);
  Requests share(Requests own) const;
  void perform(const std::shared_ptr<Request>& request, const std::function<bool()>& stop);
  std::promise<std::string>& close(const std::shared_ptr<Request>& request);
  void end();

  const std::shared_ptr<dist::Group> group_;
  const std::unique_ptr<Sampling> sampling_;
  const std::unique_ptr<Scoring> scoring_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::shared_ptr<Request>> waiting_;  // requests that run() will carry out
  std::set<std::shared_ptr<Request>> open_;       // requests without an answer
  bool ended_ = false;
};

// The run of a rank with roles of its own: answers the requests to them until the run ends. A rank
// that scores has the model of `reference`, one that samples what `sampling` makes.
train::RunOutcome serve_run(
    train::RunConfig& config, dist::World& world,
    const std::function<train::FrozenSource(const train::Policy&)>& reference,
    const std::function<std::unique_ptr<Sampling>(train::Policy&)>& sampling = {});

}  // namespace temper::workers
