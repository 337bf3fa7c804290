// Carries out the requests to a rank with roles of its own, on the one thread that uses its model.
// Where ranks hold the model together (dist::RolesSection::tensor) the first of them gets the
// requests and hands each one on, so that all of them do the same in the same order.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "temper/dist/group.h"
#include "temper/workers/rank_server.h"
#include "temper/workers/sampling.h"
#include "temper/workers/served_reference.h"

namespace temper::workers {

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

// Answers the requests to the worker's roles until the run ends.
train::RunOutcome serve(RankServer& server, ModelWorker& worker);

}  // namespace temper::workers
