#include "temper/rl/rollout/reference_worker.h"

#include <utility>

#include "temper/dist/peer_watch.h"
#include "temper/metrics/trace.h"
#include "temper/rl/batch.h"

namespace temper::rl {

ReferenceWorker::ReferenceWorker(workers::ServedReference& reference, int64_t max_tokens,
                                 double temperature, size_t threads, size_t most_waiting)
    : reference_(reference),
      max_tokens_(max_tokens),
      temperature_(temperature),
      queue_({.threads = threads,
              .most_waiting = most_waiting,
              .at_end = WorkQueueOptions::AtEnd::kDrop,
              .on_start = [] { trace::name_thread("asking for the reference"); }}) {}

void ReferenceWorker::submit(EpisodeGroup group, const std::function<void()>& check) {
  submitted_.push_back(queue_.run(
      [this, group = std::move(group)]() mutable { return compute(std::move(group)); }, check));
}

std::map<int64_t, EpisodeGroup> ReferenceWorker::collect(const std::function<void()>& check) {
  std::map<int64_t, EpisodeGroup> groups;
  for (auto& future : std::exchange(submitted_, {})) {
    dist::wait_for(future, check);
    if (std::optional<EpisodeGroup> group = future.get())
      groups.emplace(group->id, std::move(*group));
  }
  return groups;
}

// Makes the passes of a batch that consists of this group alone.
std::optional<EpisodeGroup> ReferenceWorker::compute(EpisodeGroup group) const {
  std::vector<EpisodeGroup> one;
  one.push_back(std::move(group));
  TrainingBatch batch(std::move(one));
  const auto alone = dist::alone();
  try {
    batch.score(&Segment::ref_logp, max_tokens_, *alone, [this](const train::ForwardPass& pass) {
      return reference_.ask(pass, temperature_);
    });
  } catch (const generate::remote::NoServer&) {
    return std::nullopt;  // RlTask computes them
  }
  return std::move(batch.groups()[0]);
}

}  // namespace temper::rl
