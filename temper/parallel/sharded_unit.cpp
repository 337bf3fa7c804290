#include "temper/parallel/sharded_unit.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <omp.h>
#include <torch/csrc/autograd/engine.h>

#include <algorithm>

#include "temper/metrics/trace.h"

namespace temper::parallel {
namespace {

// Gradients in flight: one that is summed, and one that waits for it.
constexpr size_t kInFlight = 2;

using ops::QuantizedWeight;
constexpr at::Tensor QuantizedWeight::* kQuantizedParts[] = {
    &QuantizedWeight::codes,         &QuantizedWeight::scales,         &QuantizedWeight::offsets,
    &QuantizedWeight::nested_scales, &QuantizedWeight::nested_offsets, &QuantizedWeight::order};

}  // namespace

Channel::Channel(std::shared_ptr<dist::Group> group)
    : group_(std::move(group)), queue_({.on_start = [] {
        omp_set_num_threads(1);  // for this thread only: the processors are the model's
        trace::name_thread("communication");
      }}) {}

std::shared_future<void> Channel::run(std::function<void(dist::Group&)> work) {
  return queue_.run([this, work = std::move(work)] { work(*group_); }).share();
}

FsdpUnit::FsdpUnit(nn::Module& module, const std::shared_ptr<dist::Group>& group,
                   std::shared_ptr<UnitSchedule> schedule)
    : trained_(std::make_shared<FlatBuffer>(group)),
      frozen_(std::make_shared<FlatBuffer>(group)),
      schedule_(std::move(schedule)) {
  module.each_parameter([&](const std::string&, nn::Parameter& parameter) {
    parameters_.push_back(&parameter);
    if (const auto codes = parameter.stored().quantized) {
      for (const auto part : kQuantizedParts)
        if (const at::Tensor& x = (*codes).*part; x.defined()) frozen_->add(x);
    } else if (parameter.trainable()) {
      trainable_.push_back(&parameter);
      trained_->add(parameter.value());
    } else {
      frozen_->add(parameter.value());
    }
  });
  trained_->lay_out();
  frozen_->lay_out();
  size_t trained = 0, frozen = 0;
  for (nn::Parameter* parameter : parameters_) {
    if (const auto codes = parameter->stored().quantized) {
      auto views = std::make_shared<ops::QuantizedWeight>(*codes);
      for (const auto part : kQuantizedParts)
        if (at::Tensor& x = (*views).*part; x.defined()) x = frozen_->value(frozen++);
      parameter->shard(*this, std::move(views));
      continue;
    }
    const FlatBuffer& buffer = parameter->trainable() ? *trained_ : *frozen_;
    const size_t place = parameter->trainable() ? trained++ : frozen++;
    parameter->shard(*this, buffer.placement(place), buffer.kept(place), buffer.value(place));
  }
}

void FsdpUnit::allocate() {
  trained_->allocate();
  frozen_->allocate();
}

std::function<void(dist::Group&)> FsdpUnit::gathering() const {
  return [trained = trained_, frozen = frozen_](dist::Group& group) {
    const trace::Span span("gather weights");
    trained->gather(group);
    frozen->gather(group);
  };
}

void FsdpUnit::free() {
  trained_->release();
  frozen_->release();
}

uint64_t FsdpUnit::updates() const {
  uint64_t sum = 0;
  for (const nn::Parameter* parameter : parameters_) sum += parameter->updates();
  return sum;
}

void FsdpUnit::drop() {
  for (nn::Parameter* parameter : parameters_) parameter->release();
  if (!schedule_->keeps(*this)) free();
}

// Records the unit that followed the present one, for the next time that these two follow each
// other.
void UnitSchedule::learn(FsdpUnit& unit, bool was_stale) {
  if (present_) {
    Next& next = next_[{before_, present_}];
    next.stale = was_stale || (next.unit == &unit && next.stale);
    next.unit = &unit;
  }
  before_ = present_;
  present_ = &unit;
}

// Whether the unit's values are whole because they were gathered ahead; those of another unit, or
// from before an update, are given up. The same on all ranks.
bool UnitSchedule::take_ahead(FsdpUnit& unit) {
  FsdpUnit* const ahead = std::exchange(ahead_, nullptr);
  if (!ahead) return false;
  if (arriving_.valid()) {
    const trace::Span span("wait for weights");
    std::exchange(arriving_, {}).get();
  }
  if (ahead == &unit && ahead_updates_ == unit.updates()) return true;
  if (!ahead->gathered() || ahead == &unit) ahead->free();
  return false;
}

void UnitSchedule::use(FsdpUnit& unit) {
  const bool was_ahead = ahead_ == &unit, here = take_ahead(unit);
  learn(unit, was_ahead && !here);
  if (!here) {
    unit.allocate();
    if (channel_) {
      const trace::Span span("wait for weights");
      channel_->run(unit.gathering()).get();
    } else {
      unit.gathering()(group_);
    }
  }
  if (!channel_) return;
  const auto found = next_.find({before_, present_});
  if (found == next_.end() || found->second.stale) return;
  FsdpUnit& next = *found->second.unit;
  if (next.gathered()) return;  // by itself, or by somebody who holds all of them
  ahead_ = &next;
  ahead_updates_ = next.updates();
  next.allocate();
  arriving_ = channel_->run(next.gathering());
}

bool UnitSchedule::keeps(FsdpUnit& unit) {
  if (ahead_ == &unit) return true;  // on its way already
  if (!channel_ || ahead_ || present_ != &unit) return false;
  const auto found = next_.find({before_, present_});
  if (found == next_.end() || found->second.stale || found->second.unit != &unit) return false;
  ahead_ = &unit;
  ahead_updates_ = unit.updates();
  return true;
}

void UnitSchedule::forget(FsdpUnit& unit) {
  try {
    if (ahead_ == &unit) {
      ahead_ = nullptr;
      if (arriving_.valid()) std::exchange(arriving_, {}).get();
    }
  } catch (const std::exception&) {
    // A rank is gone: the next use of its weights throws.
  }
  next_.clear();
  most_times_.clear();
  before_ = present_ = nullptr;
}

void UnitSchedule::reduce(FsdpUnit& unit,
                          std::vector<std::pair<nn::Parameter*, at::Tensor>>& gradients) {
  const std::vector<nn::Parameter*>& own = unit.trainable();
  const auto place = [&](const nn::Parameter* parameter) {
    return static_cast<size_t>(std::find(own.begin(), own.end(), parameter) - own.begin());
  };
  std::vector<at::Tensor> whole(own.size());
  for (auto& [parameter, gradient] : gradients)
    if (const size_t i = place(parameter); i < whole.size()) whole[i] = std::move(gradient);
  if (own.empty()) return;
  at::Tensor sums = unit.trained().empty_part();
  auto sum = [all = unit.trained().flatten(std::move(whole)), sums](dist::Group& group) mutable {
    const trace::Span span("reduce-scatter gradients");
    group.reduce_scatter_sum(all, sums);
    all.reset();
  };
  if (!channel_) {
    sum(group_);
    const std::vector<at::Tensor> parts = unit.trained().parts_of(sums);
    for (auto& [parameter, gradient] : gradients)
      if (const size_t i = place(parameter); i < parts.size()) gradient = parts[i];
    return;
  }
  for (auto& [parameter, gradient] : gradients)
    if (place(parameter) < own.size()) gradient = at::Tensor();
  const int pass = torch::autograd::get_current_graph_task_id();
  if (std::exchange(pass_, pass) != pass) {
    // left by a pass that threw
    for (const Reduction& left : std::exchange(reductions_, {})) left.done.wait();
    summed_.clear();
    times_.clear();
    torch::autograd::Engine::get_default_engine().queue_callback([this] { end_backward(); });
  }
  ++times_[&unit];
  if (reductions_.size() >= kInFlight) {
    const trace::Span span("wait for gradients");
    take_sums();
  }
  reductions_.push_back({&unit, sums, channel_->run(std::move(sum))});
}

namespace {

void add_gradient(nn::Parameter& parameter, const at::Tensor& part) {
  at::Tensor& gradient = parameter.trained().mutable_grad();
  if (gradient.defined())
    gradient.add_(part);
  else
    gradient = part;
}

}  // namespace

// Takes the sums of the oldest reduction, and adds them as autograd adds gradients: those of one
// backward pass are summed in the order in which they came, then added to what earlier passes left.
// Gradients of a unit of which no pass so far had more than one are added at once, so that there
// are not two copies of all gradients.
void UnitSchedule::take_sums() {
  const at::NoGradGuard no_grad;
  const Reduction oldest = std::move(reductions_.front());
  reductions_.pop_front();
  oldest.done.get();
  const std::vector<at::Tensor> parts = oldest.unit->trained().parts_of(oldest.sums);
  const auto most = most_times_.find(oldest.unit);
  const bool alone = most != most_times_.end() && most->second == 1;
  for (size_t i = 0; i < parts.size(); ++i) {
    nn::Parameter& parameter = *oldest.unit->trainable()[i];
    if (alone) {
      add_gradient(parameter, parts[i]);
      continue;
    }
    at::Tensor& sum = summed_[&parameter];
    sum = sum.defined() ? sum + parts[i] : parts[i];
  }
}

void UnitSchedule::end_backward() {
  const at::NoGradGuard no_grad;
  const trace::Span span("wait for gradients");
  while (!reductions_.empty()) take_sums();
  for (const auto& [parameter, sum] : summed_) add_gradient(*parameter, sum);
  summed_.clear();
  for (const auto& [unit, times] : times_) {
    int& most = most_times_[unit];
    most = std::max(most, times);
  }
  // Weights may change from here on.
  if (arriving_.valid()) arriving_.get();
  arriving_ = {};
}

}  // namespace temper::parallel
