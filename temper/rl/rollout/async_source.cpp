#include "temper/rl/rollout/async_source.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "temper/base/clock.h"
#include "temper/base/error.h"
#include "temper/metrics/trace.h"
#include "temper/rl/rollout/rollout_lines.h"

namespace temper::rl {
namespace {

// Name of the tensor with the lines of the batches in a checkpoint; an empty line ends each batch.
constexpr const char* kTensor = "rollouts_begun.jsonl";

// While one lives, the calling thread waits, and sampling has all processors.
class WaitingForSampling {
 public:
  explicit WaitingForSampling(SyncSource& source) : source_(source) {
    source_.share_processors(false);
  }
  ~WaitingForSampling() { source_.share_processors(true); }
  WaitingForSampling(const WaitingForSampling&) = delete;
  WaitingForSampling& operator=(const WaitingForSampling&) = delete;

 private:
  SyncSource& source_;
};

// Waits for the sampling thread, and passes on its messages meanwhile: it may wait for servers.
template <class Future>
void wait_for(const Future& future, KeptMessages& messages) {
  constexpr std::chrono::milliseconds kBetweenMessages{500};
  while (future.wait_for(kBetweenMessages) != std::future_status::ready) messages.pass_on();
}

MetricsRow to_row(const Json& values) {
  return MetricsRow::from_json(dump_json(values), "the checkpoint");
}

}  // namespace

void KeptMessages::warn_once(const std::string& what, const std::string& message) {
  const std::lock_guard lock(mutex_);
  messages_.push_back({true, what, message});
}

void KeptMessages::note(const std::string& text) {
  const std::lock_guard lock(mutex_);
  messages_.push_back({false, {}, text});
}

void KeptMessages::pass_on() {
  std::vector<Message> messages;
  {
    const std::lock_guard lock(mutex_);
    messages.swap(messages_);
  }
  for (const Message& m : messages) m.warning ? to_.warn_once(m.what, m.text) : to_.note(m.text);
}

AsyncSource::AsyncSource(const RlConfig& config, std::unique_ptr<SyncSource> inner,
                         std::unique_ptr<KeptMessages> messages, LineFormat format)
    : config_(config),
      messages_(std::move(messages)),
      format_(std::move(format)),
      inner_(std::move(inner)),
      state_after_(inner_->state()),
      queue_({.at_end = WorkQueueOptions::AtEnd::kDrop,
              .on_start = [] { trace::name_thread("sampling ahead"); }}) {}

AsyncSource::~AsyncSource() {
  queue_.stop();
  inner_->stop();
}

// Once a job has failed those after it fail with it: they would draw from another place in the data
// and, where the other ranks did not fail, run collectives that do not match theirs.
void AsyncSource::run(const std::function<void()>& work) {
  if (failure_) std::rethrow_exception(failure_);
  try {
    work();
  } catch (...) {
    failure_ = std::current_exception();
    throw;
  }
}

void AsyncSource::sample(Job& job) {
  std::vector<RolloutDriver::Stage> stages;
  for (const Stage& stage : job.stages) {
    if (!stage.batch->partial) stage.batch->partial = inner_->begin();
    if (stage.batch->partial) stages.push_back({stage.batch->partial.get(), stage.tokens});
  }
  if (!stages.empty()) inner_->sample(stages, job.version);
  for (; !job.stages.empty(); job.stages.pop_front()) {
    Stage& stage = job.stages.front();
    stage.sampled.set_value(take(*stage.batch, stage.tokens, job.version));
  }
}

AsyncSource::Sampled AsyncSource::take(Batch& batch, int64_t tokens, int64_t version) {
  Sampled sampled;
  if (tokens < longest()) {
    if (batch.partial) sampled.lines = inner_->lines(*batch.partial);
    return sampled;
  }
  if (batch.partial) sampled.rollouts = inner_->finish(*batch.partial, version);
  sampled.source = inner_->state();
  inner_->describe(sampled.about);
  batch.partial.reset();
  return sampled;
}

void AsyncSource::plan(Job& job, const BatchPointer& batch, int64_t stages_left) const {
  const int64_t left = longest() - batch->planned;
  if (left == 0) return;
  batch->planned += (left + stages_left - 1) / stages_left;
  Stage& stage = job.stages.emplace_back(Stage{batch, batch->planned, {}});
  batch->sampled = stage.sampled.get_future().share();
}

void AsyncSource::submit(Job job) {
  if (job.stages.empty()) return;
  inner_->keep(job.version);
  queue_.run([this, job = std::move(job)]() mutable {
    try {
      run([&] { sample(job); });
    } catch (...) {
      for (Stage& stage : job.stages) stage.sampled.set_exception(failure_);
    }
  });
}

RolloutBatch AsyncSource::next(int64_t policy_version) {
  if (in_flight_.empty()) in_flight_.push_back(std::make_shared<Batch>());
  const BatchPointer batch = in_flight_.front();
  Job rest{policy_version};
  plan(rest, batch, 1);  // it is used earlier than planned, or is the first
  submit(std::move(rest));
  const double start = steady_seconds();
  {
    const trace::Span span("waiting for a rollout");
    const WaitingForSampling gives_processors(*inner_);
    wait_for(batch->sampled, *messages_);
  }
  messages_->pass_on();
  const Sampled& sampled = batch->sampled.get();
  in_flight_.pop_front();
  state_after_ = sampled.source;
  about_ = sampled.about;
  about_.set("rollout_wait_seconds", steady_seconds() - start);
  return sampled.rollouts;  // a copy: a checkpoint may still ask for the batch
}

// How many updates there are before a batch that is not used yet is a matter of the plan: batches
// that turn out shorter are used earlier, and are less stale.
void AsyncSource::look_ahead(int64_t policy_version, int64_t updates_left) {
  const bool continues = config_.rollout.update == RlRolloutSection::Update::kContinue;
  const int64_t updates = config_.rl.updates_per_batch();
  const std::optional<int64_t> steps = config_.train.max_steps;
  // Updates until the batch at that place is used.
  const auto updates_before = [&](size_t place) {
    return updates_left + updates * static_cast<int64_t>(place);
  };
  Job job{policy_version};
  if (continues && policy_version > continued_)
    for (size_t i = 0; i < in_flight_.size(); ++i) plan(job, in_flight_[i], updates_before(i));
  continued_ = policy_version;
  const auto most =
      static_cast<size_t>(config_.train.max_inflight.value_or(std::numeric_limits<int64_t>::max()));
  for (int64_t before; in_flight_.size() < most &&
                       (before = updates_before(in_flight_.size())) <= config_.rl.max_staleness &&
                       (!steps || policy_version + before < *steps);) {
    in_flight_.push_back(std::make_shared<Batch>());
    plan(job, in_flight_.back(), continues ? before : 1);
  }
  submit(std::move(job));
}

void AsyncSource::describe(MetricsRow& row) const {
  for (const auto& [name, value] : about_.values()) row.set(name, value);
}

// The sampling thread runs the evaluation after all jobs that it was given before. It thus runs the
// collectives of evaluation and sampling in one order on every rank, which two threads would not.
bool AsyncSource::evaluate(train::EvaluationSums& sums, const std::function<bool()>& stop) {
  bool any = false;
  std::future<void> evaluated =
      queue_.run([&] { run([&] { any = inner_->evaluate(sums, stop); }); });
  {
    // Waits also where passing on a message threw: the other thread uses the arguments.
    struct Ended {
      const std::future<void>& future;
      ~Ended() { future.wait(); }
    } const waits{evaluated};
    const WaitingForSampling gives_processors(*inner_);
    wait_for(evaluated, *messages_);
  }
  messages_->pass_on();
  evaluated.get();
  return any;
}

Json AsyncSource::state() const {
  Json about = Json::parse(about_.json());
  about.erase("rollout_wait_seconds");
  return {{"inner", state_after_}, {"about", std::move(about)}};
}

void AsyncSource::restore(const Json& state, const std::string& where) {
  check<DataError>(state.is_object() && state.contains("inner") && state.contains("about"), where,
                   ": the run was begun without rl.max_staleness, and does not go on with it; "
                   "choose another output_dir, or resume=never");
  state_after_ = state["inner"];
  about_ = to_row(state["about"]);
  inner_->restore(state_after_, where);
}

std::function<void(train::TaskState&)> AsyncSource::in_flight() const {
  std::vector<InFlight> batches;
  for (const BatchPointer& batch : in_flight_) batches.push_back({batch->planned, batch->sampled});
  if (batches.empty()) return {};
  return [this, batches](train::TaskState& state) { add_in_flight(batches, state); };
}

// Waits for them. A batch that failed, and those after it, are begun again on resuming, with the
// weights of then.
void AsyncSource::add_in_flight(const std::vector<InFlight>& batches,
                                train::TaskState& state) const {
  Json all = Json::array();
  std::string lines;
  for (const auto& [planned, future] : batches) {
    wait_for(future, *messages_);
    const Sampled* sampled = nullptr;
    try {
      sampled = &future.get();
    } catch (...) {
      break;
    }
    const bool done = planned == longest();
    if (done ? sampled->rollouts.groups.empty() : sampled->lines.empty()) break;  // no more data
    lines += (done ? to_lines(sampled->rollouts.groups, true) : sampled->lines) + "\n";
    Json one = {{"tokens", planned}};
    if (done) {
      one["source"] = sampled->source;
      one["about"] = Json::parse(sampled->about.json());
    }
    all.push_back(std::move(one));
  }
  state.values["begun"] = std::move(all);
  state.tensors[kTensor] = bytes_view(std::move(lines));
}

void AsyncSource::restore_in_flight(const train::TaskState& state, const std::string& where) {
  in_flight_.clear();
  const Json all = state.values.value("begun", Json::array());
  if (all.empty()) return;
  const auto found = state.tensors.find(kTensor);
  check<DataError>(found != state.tensors.end() && found->second.dtype == DType::kUInt8, where,
                   ": no tensor ", kTensor, " with the rollouts that were sampled ahead");
  std::istringstream lines(bytes_of(found->second));
  for (const Json& one : all) {
    check<DataError>(one.is_object() && one.contains("tokens") &&
                         one["tokens"].is_number_integer() && one["tokens"] > 0 &&
                         one["tokens"] <= longest(),
                     where, ": `begun` must be a list of batches");
    auto batch = std::make_shared<Batch>();
    batch->planned = one["tokens"].get<int64_t>();
    std::string text;
    for (std::string line; std::getline(lines, line) && !line.empty();) text += line + "\n";
    Sampled sampled;
    if (batch->planned == longest()) {
      check<DataError>(one.contains("source") && one.contains("about"), where,
                       ": `begun` has a batch without its source");
      sampled.source = one["source"];
      sampled.about = to_row(one["about"]);
      add_lines(sampled.rollouts.groups, text, format_, where);
      inner_->restore(sampled.source, where);
    } else {
      batch->partial = inner_->resume(text, batch->planned, where);
      sampled.lines = std::move(text);
    }
    std::promise<Sampled> known;
    known.set_value(std::move(sampled));
    batch->sampled = known.get_future().share();
    in_flight_.push_back(std::move(batch));
  }
}

std::vector<std::pair<std::string, std::string>> AsyncSource::summary() const {
  return inner_->summary();
}

}  // namespace temper::rl
