#include "temper/rl/ahead.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "temper/base/clock.h"
#include "temper/base/error.h"
#include "temper/metrics/trace.h"

namespace temper::rl {
namespace {

// Lines of the batches in a checkpoint; an empty line ends each.
constexpr const char* kTensor = "rollouts_begun.jsonl";

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

AheadSource::AheadSource(const RlConfig& config, std::unique_ptr<RolloutSource> inner,
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
    to_sample_.clear();
  }
  changed_.notify_all();
  inner_->stop();
  thread_.join();
}

void AheadSource::work() {
  trace::name_thread("sampling ahead");
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ending_ || !to_sample_.empty(); });
    if (ending_) return;
    const BatchPointer batch = std::move(to_sample_.front());
    to_sample_.pop_front();
    lock.unlock();
    try {
      const std::lock_guard sampling(sampling_);
      batch->rollouts = inner_->next(batch->version);
      batch->source = inner_->state();
      inner_->describe(batch->about);
    } catch (...) {
      batch->failure = std::current_exception();
    }
    lock.lock();
    batch->done = true;
    // What follows a batch that failed would be drawn from another place in the data.
    if (batch->failure)
      for (const BatchPointer& later : std::exchange(to_sample_, {})) {
        later->failure = batch->failure;
        later->done = true;
      }
    changed_.notify_all();
  }
}

void AheadSource::begin(int64_t version) {
  inner_->keep(version);
  auto batch = std::make_shared<Batch>();
  batch->version = version;
  begun_.push_back(batch);
  const std::lock_guard lock(mutex_);
  to_sample_.push_back(std::move(batch));
  changed_.notify_all();
}

void AheadSource::wait_for(const Batch& batch) const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return batch.done; });
}

RolloutBatch AheadSource::next(int64_t policy_version) {
  if (begun_.empty()) begin(policy_version);
  const BatchPointer batch = begun_.front();
  const double start = steady_seconds();
  {
    const trace::Span span("waiting for a rollout");
    inner_->share_processors(false);
    wait_for(*batch);
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

// How many updates there are before the next batch that is not begun is a matter of the plan:
// batches that turn out shorter are used earlier, and are less stale.
void AheadSource::look_ahead(int64_t policy_version, int64_t updates_left) {
  const int64_t updates = config_.rl.updates_per_batch();
  const auto planned = [&] {
    const int64_t before =
        updates_left + updates * static_cast<int64_t>(begun_.size());  // until it is used
    const std::optional<int64_t> steps = config_.train.max_steps;
    return before <= config_.rl.max_staleness && (!steps || policy_version + before < *steps);
  };
  while (planned()) begin(policy_version);
}

void AheadSource::describe(MetricsRow& row) const {
  for (const auto& [name, value] : about_.values()) row.set(name, value);
}

bool AheadSource::evaluate(train::EvaluationSums& sums, const std::function<bool()>& stop) {
  const std::lock_guard sampling(sampling_);
  return inner_->evaluate(sums, stop);
}

Json AheadSource::state() const {
  Json about = Json::parse(about_.json());
  about.erase("rollout_wait_seconds");
  return {{"inner", behind_}, {"about", std::move(about)}};
}

void AheadSource::restore(const Json& state, const std::string& where) {
  check<DataError>(state.is_object() && state.contains("inner") && state.contains("about"), where,
                   ": no state of batches that were sampled ahead (rl.max_staleness)");
  behind_ = state["inner"];
  about_ = to_row(state["about"]);
  inner_->restore(behind_, where);
}

std::function<void(train::TaskState&)> AheadSource::begun() const {
  const std::vector<BatchPointer> batches(begun_.begin(), begun_.end());
  if (batches.empty()) return {};
  return [this, batches](train::TaskState& state) { add_begun(batches, state); };
}

// Waits for them. One that failed and those behind it are begun again on resuming, with the weights
// of then.
void AheadSource::add_begun(const std::vector<BatchPointer>& batches,
                            train::TaskState& state) const {
  Json all = Json::array();
  std::string lines;
  for (const BatchPointer& batch : batches) {
    wait_for(*batch);
    if (batch->failure || batch->rollouts.groups.empty()) break;
    for (const EpisodeGroup& group : batch->rollouts.groups)
      for (const Episode& episode : group.episodes) lines += to_line(group, episode, true) + "\n";
    lines += "\n";
    all.push_back({{"version", batch->version},
                   {"source", batch->source},
                   {"about", Json::parse(batch->about.json())}});
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
    check<DataError>(one.is_object() && one.contains("version") &&
                         one["version"].is_number_integer() && one.contains("source") &&
                         one.contains("about"),
                     where, ": `begun` must be a list of batches");
    auto batch = std::make_shared<Batch>();
    batch->version = one["version"].get<int64_t>();
    batch->source = one["source"];
    batch->about = to_row(one["about"]);
    batch->done = true;
    for (std::string line; std::getline(lines, line) && !line.empty();)
      add_line(batch->rollouts.groups, parse_json(line, where), vocabulary_, where);
    begun_.push_back(std::move(batch));
  }
  inner_->restore(begun_.back()->source, where);
}

std::vector<std::pair<std::string, std::string>> AheadSource::summary() const {
  return inner_->summary();
}

}  // namespace temper::rl
