// A module whose parameters the ranks of a group share out, and the schedule of their
// communication.
//
// The order in which a model's units are used is the same in every pass, so the unit that comes
// next is known: its values are gathered while the present one computes. Gradients are summed while
// the backward pass goes on to the next units, and then added to the parameters' own. Every
// decision follows from the order of uses alone, which is the same on all ranks; so is, therefore,
// the order of the collectives.
#pragma once

#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "temper/base/work_queue.h"
#include "temper/dist/group.h"
#include "temper/nn/unit.h"
#include "temper/parallel/flat_buffer.h"

namespace temper::parallel {

// Collectives of one group on a thread of its own, so that they run while the model computes.
// Jobs run in the order in which they were added: ranks that add them in the same order agree, and
// every sum is the same bits as on the caller's own thread.
class Channel {
 public:
  // The group is the channel's alone (dist::Group::clone_for_thread). The destructor runs the jobs
  // that are left.
  explicit Channel(std::shared_ptr<dist::Group> group);

  // The result's get() waits, and throws what `work` threw.
  std::shared_future<void> run(std::function<void(dist::Group&)> work);

 private:
  std::shared_ptr<dist::Group> group_;
  WorkQueue queue_;  // last: its jobs use the group
};

class FsdpUnit;

// The communication of the units of one model. One thread uses it.
class UnitSchedule {
 public:
  // Without a channel everything is done when it is asked for.
  UnitSchedule(dist::Group& group, std::shared_ptr<Channel> channel)
      : group_(group), channel_(std::move(channel)) {}

  // Before the unit is used: its values are whole afterwards, and those of the next one on their
  // way.
  void use(FsdpUnit& unit);
  // Whether the unit, which is used no more, is also the next: its values stay.
  bool keeps(FsdpUnit& unit);
  void forget(FsdpUnit& unit);

  // Sums the gradients of a unit's parameters; those that it takes over are undefined afterwards,
  // and in place when the backward pass has ended.
  void reduce(FsdpUnit& unit, std::vector<std::pair<nn::Parameter*, at::Tensor>>& gradients);

 private:
  struct Next {
    FsdpUnit* unit = nullptr;
    bool stale = false;  // its values change in between: they are not gathered ahead
  };
  struct Reduction {
    FsdpUnit* unit;
    at::Tensor sums;
    std::shared_future<void> done;
  };
  void learn(FsdpUnit& unit, bool was_stale);
  bool take_ahead(FsdpUnit& unit);
  void take_sums();
  void end_backward();

  dist::Group& group_;
  std::shared_ptr<Channel> channel_;
  FsdpUnit *before_ = nullptr, *present_ = nullptr;
  std::map<std::pair<FsdpUnit*, FsdpUnit*>, Next> next_;
  // The unit whose values are whole, or on their way, before it is used.
  FsdpUnit* ahead_ = nullptr;
  uint64_t ahead_updates_ = 0;
  std::shared_future<void> arriving_;
  // The running backward pass: its number, as autograd counts; reductions in flight; sums that
  // later gradients of the pass may be added to; reductions of each unit, in this pass and at most
  // in any.
  int pass_ = -1;
  std::deque<Reduction> reductions_;
  std::map<nn::Parameter*, at::Tensor> summed_;
  std::map<const FsdpUnit*, int> times_, most_times_;
};

class FsdpUnit : public nn::ShardUnit {
 public:
  FsdpUnit(nn::Module& module, const std::shared_ptr<dist::Group>& group,
           std::shared_ptr<UnitSchedule> schedule);
  ~FsdpUnit() override { schedule_->forget(*this); }

  void reduce(std::vector<std::pair<nn::Parameter*, at::Tensor>>& gradients) override {
    schedule_->reduce(*this, gradients);
  }

  // For the schedule: allocates memory for the values, gives the job that fills it, and frees it.
  void allocate();
  std::function<void(dist::Group&)> gathering() const;
  void free();
  // How often its parameters were updated.
  uint64_t updates() const;

  // The parameters that train, and their buffer.
  const std::vector<nn::Parameter*>& trainable() const { return trainable_; }
  const FlatBuffer& trained() const { return *trained_; }

 private:
  void fetch() override { schedule_->use(*this); }
  void drop() override;

  std::vector<nn::Parameter*> parameters_, trainable_;
  // Shared with transfers in flight.
  std::shared_ptr<FlatBuffer> trained_, frozen_;
  std::shared_ptr<UnitSchedule> schedule_;
};

}  // namespace temper::parallel
