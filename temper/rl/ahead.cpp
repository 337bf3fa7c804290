#include "temper/rl/ahead.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <sstream>

#include "temper/base/clock.h"
#include "temper/base/error.h"
#include "temper/metrics/trace.h"
#include "temper/rl/rollout_lines.h"

namespace temper::rl {
namespace {

// Lines of the batches in a checkpoint; an empty line ends each.
constexpr const char* kTensor = "rollouts_begun.jsonl";

constexpr std::chrono::milliseconds kBetweenMessages{500};  // while the trainer waits

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

AheadSource::AheadSource(const RlConfig& config, std::unique_ptr<SampledSource> inner,
                         std::unique_ptr<KeptMessages> messages, int64_t vocabulary)
    : config_(config),
      messages_(std::move(messages)),
      vocabulary_(vocabulary),
      inner_(std::move(inner)),
      behind_(inner_->state()),
      thread_([this] { work(); }) {}

AheadSource::~AheadSource() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    jobs_.clear();
  }
  changed_.notify_all();
  inner_->stop();
  thread_.join();
}

void AheadSource::work() {
  trace::name_thread("sampling ahead");
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ending_ || !jobs_.empty(); });
    if (ending_) return;
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    // Jobs after a failed batch would draw from another place in the data and, where the other
    // ranks did not fail, run collectives that do not match theirs: they fail with it.
    if (!failure_) {
      lock.unlock();
      std::exception_ptr failure;
      try {
        run(job);
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      failure_ = failure;
    }
    if (failure_) fail(job);
    changed_.notify_all();
  }
}

void AheadSource::fail(const Job& job) {
  if (job.evaluation) job.evaluation->failure = failure_;
  for (const auto& [batch, tokens] : job.parts)
    if (batch->sampled < tokens) batch->failure = failure_;
}

void AheadSource::run(const Job& job) {
  if (!job.evaluation) return run_parts(job);
  const bool any = inner_->evaluate(job.evaluation->sums, job.evaluation->stop);
  const std::lock_guard lock(mutex_);
  job.evaluation->any = any;
  job.evaluation->done = true;
}

void AheadSource::run_parts(const Job& job) {
  std::vector<RolloutSampler::Stage> stages;
  for (const auto& [batch, tokens] : job.parts) {
    if (!batch->partial) batch->partial = inner_->begin();
    if (batch->partial) stages.push_back({batch->partial.get(), tokens});
  }
  if (!stages.empty()) inner_->sample(stages, job.version);
  for (const auto& [batch, tokens] : job.parts) {
    RolloutBatch rollouts;
    Json source;
    MetricsRow about;
    std::string unfinished;
    if (tokens < longest()) {
      if (batch->partial) unfinished = inner_->lines(*batch->partial);
    } else {
      if (batch->partial) rollouts = inner_->finish(*batch->partial, job.version);
      source = inner_->state();
      inner_->describe(about);
      batch->partial.reset();
    }
    const std::lock_guard lock(mutex_);
    batch->sampled = tokens;
    batch->unfinished[tokens] = std::move(unfinished);
    batch->rollouts = std::move(rollouts);
    batch->source = std::move(source);
    batch->about = std::move(about);
  }
}

void AheadSource::plan(Job& job, const BatchPointer& batch, int64_t stages_left) const {
  const int64_t left = longest() - batch->planned;
  if (left == 0) return;
  batch->planned += (left + stages_left - 1) / stages_left;
  job.parts.emplace_back(batch, batch->planned);
}

void AheadSource::submit(Job job) {
  if (job.parts.empty() && !job.evaluation) return;
  if (!job.evaluation) inner_->keep(job.version);
  const std::lock_guard lock(mutex_);
  jobs_.push_back(std::move(job));
  changed_.notify_all();
}

void AheadSource::attend(const std::function<bool()>& done) const {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kBetweenMessages, done)) {
    lock.unlock();
    messages_->pass_on();
    lock.lock();
  }
}

void AheadSource::attend(const Batch& batch, int64_t tokens) const {
  attend([&] { return batch.failure || batch.sampled >= tokens; });
}

RolloutBatch AheadSource::next(int64_t policy_version) {
  if (begun_.empty()) begun_.push_back(std::make_shared<Batch>());
  const BatchPointer batch = begun_.front();
  Job rest{policy_version, {}};
  plan(rest, batch, 1);  // it is used earlier than planned, or is the first
  submit(std::move(rest));
  const double start = steady_seconds();
  {
    const trace::Span span("waiting for a rollout");
    inner_->share_processors(false);
    attend(*batch, longest());
    inner_->share_processors(true);
  }
  messages_->pass_on();
  if (batch->failure) std::rethrow_exception(batch->failure);
  begun_.pop_front();
  behind_ = batch->source;
  about_ = batch->about;
  about_.set("rollout_wait_seconds", steady_seconds() - start);
  return batch->rollouts;  // a copy: a checkpoint may still ask for the batch
}

// How many updates there are before a batch that is not used yet is a matter of the plan: batches
// that turn out shorter are used earlier, and are less stale.
void AheadSource::look_ahead(int64_t policy_version, int64_t updates_left) {
  const bool continues = config_.rollout.update == RlRolloutSection::Update::kContinue;
  const int64_t updates = config_.rl.updates_per_batch();
  const std::optional<int64_t> steps = config_.train.max_steps;
  // Until the batch at that place is used.
  const auto updates_before = [&](size_t place) {
    return updates_left + updates * static_cast<int64_t>(place);
  };
  Job job{policy_version, {}};
  if (continues && policy_version > asked_)
    for (size_t i = 0; i < begun_.size(); ++i) plan(job, begun_[i], updates_before(i));
  asked_ = policy_version;
  for (int64_t before; (before = updates_before(begun_.size())) <= config_.rl.max_staleness &&
                       (!steps || policy_version + before < *steps);) {
    begun_.push_back(std::make_shared<Batch>());
    plan(job, begun_.back(), continues ? before : 1);
  }
  submit(std::move(job));
}

void AheadSource::describe(MetricsRow& row) const {
  for (const auto& [name, value] : about_.values()) row.set(name, value);
}

// The sampling thread runs the evaluation after all jobs that it was given before. It thus runs the
// collectives of evaluation and sampling in one order on every rank, which two threads would not.
bool AheadSource::evaluate(train::EvaluationSums& sums, const std::function<bool()>& stop) {
  Evaluation evaluation{sums, stop};
  const auto ended = [&] { return evaluation.done || evaluation.failure; };
  submit({.evaluation = &evaluation});
  {
    // Waits also where passing on a message threw: the other thread uses `evaluation`.
    struct Ended {
      AheadSource& source;
      const std::function<bool()> ended;
      ~Ended() {
        std::unique_lock lock(source.mutex_);
        source.changed_.wait(lock, ended);
      }
    } const waits{*this, ended};
    inner_->share_processors(false);
    attend(ended);
    inner_->share_processors(true);
  }
  messages_->pass_on();
  if (evaluation.failure) std::rethrow_exception(evaluation.failure);
  return evaluation.any;
}

Json AheadSource::state() const {
  Json about = Json::parse(about_.json());
  about.erase("rollout_wait_seconds");
  return {{"inner", behind_}, {"about", std::move(about)}};
}

void AheadSource::restore(const Json& state, const std::string& where) {
  check<DataError>(state.is_object() && state.contains("inner") && state.contains("about"), where,
                   ": the run was begun without rl.max_staleness, and does not go on with it; "
                   "choose another output_dir, or resume=never");
  behind_ = state["inner"];
  about_ = to_row(state["about"]);
  inner_->restore(behind_, where);
}

std::function<void(train::TaskState&)> AheadSource::begun() const {
  std::vector<Begun> batches;
  for (const BatchPointer& batch : begun_) batches.push_back({batch, batch->planned});
  if (batches.empty()) return {};
  return [this, batches](train::TaskState& state) { add_begun(batches, state); };
}

// Waits for them. One that failed and those behind it are begun again on resuming, with the weights
// of then.
void AheadSource::add_begun(const std::vector<Begun>& batches, train::TaskState& state) const {
  Json all = Json::array();
  std::string lines;
  for (const auto& [batch, planned] : batches) {
    attend(*batch, planned);
    const std::lock_guard lock(mutex_);
    const bool done = planned == longest();
    if (batch->failure || (done && batch->rollouts.groups.empty())) break;
    if (!done && batch->unfinished.at(planned).empty()) break;  // the data has ended
    lines += (done ? to_lines(batch->rollouts.groups, true) : batch->unfinished.at(planned)) + "\n";
    Json one = {{"tokens", planned}};
    if (done) {
      one["source"] = batch->source;
      one["about"] = Json::parse(batch->about.json());
    }
    all.push_back(std::move(one));
  }
  state.values["begun"] = std::move(all);
  state.tensors[kTensor] = bytes_view(std::move(lines));
}

void AheadSource::restore_begun(const train::TaskState& state, const std::string& where) {
  begun_.clear();
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
    batch->planned = batch->sampled = one["tokens"].get<int64_t>();
    std::string text;
    for (std::string line; std::getline(lines, line) && !line.empty();) text += line + "\n";
    if (batch->planned == longest()) {
      check<DataError>(one.contains("source") && one.contains("about"), where,
                       ": `begun` has a batch without its source");
      batch->source = one["source"];
      batch->about = to_row(one["about"]);
      add_lines(batch->rollouts.groups, text, vocabulary_, where);
      inner_->restore(batch->source, where);
    } else {
      batch->partial = inner_->resume(text, batch->planned, where);
      batch->unfinished[batch->planned] = std::move(text);
    }
    begun_.push_back(std::move(batch));
  }
}

std::vector<std::pair<std::string, std::string>> AheadSource::summary() const {
  return inner_->summary();
}

}  // namespace temper::rl
