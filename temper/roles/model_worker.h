// What a rank with roles of its own is asked, done on the one thread that uses its model. Where
// ranks hold the model together (dist::RolesSection::tensor) the first of them is asked: it hands
// each request on, so that all of them do the same in the same order.
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
#include "temper/roles/rank_server.h"
#include "temper/roles/sampling.h"
#include "temper/roles/served_reference.h"

namespace temper::roles {

class ModelWorker {
 public:
  // group: the ranks that hold the model together, or this one alone. The roles that this rank has,
  // null: it does not have it.
  ModelWorker(std::shared_ptr<dist::Group> group, std::unique_ptr<Sampling> sampling,
              std::unique_ptr<Scoring> scoring);

  // Answers to requests (wire.h), from any thread: waits until run() has done what is asked. Throws
  // DataError, and RunError where this rank ends before.
  std::string sample(const std::string& text);
  std::string score(const std::string& text);
  std::string take_weights(const std::string& version, const std::string& bytes);

  // Does what is asked until `stop`, or until the first of the group ends; whoever waits then gets
  // a RunError. Throws RunError where another of the group is gone.
  void run(const std::function<bool()>& stop);

 private:
  struct Request;
  using Requests = std::vector<std::shared_ptr<Request>>;
  std::string ask(const std::shared_ptr<Request>& request);
  // Of what waits: all that can be done now, in order. `sampling`: some is being sampled.
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
  std::deque<std::shared_ptr<Request>> waiting_;  // for run()
  std::set<std::shared_ptr<Request>> open_;       // not answered yet
  bool ended_ = false;
};

// Answers what the worker's roles are asked until the run ends.
train::RunOutcome serve(RankServer& server, ModelWorker& worker);

}  // namespace temper::roles
