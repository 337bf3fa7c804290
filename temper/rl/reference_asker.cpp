#include "temper/rl/reference_asker.h"

#include <chrono>
#include <utility>

#include "temper/dist/peer_watch.h"
#include "temper/metrics/trace.h"
#include "temper/rl/batch.h"

namespace temper::rl {

ReferenceAsker::ReferenceAsker(roles::ServedReference& reference, int64_t max_tokens,
                               double temperature, size_t threads)
    : reference_(reference), max_tokens_(max_tokens), temperature_(temperature) {
  for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

ReferenceAsker::~ReferenceAsker() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    waiting_.clear();
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ReferenceAsker::submit(EpisodeGroup group) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(group));
  }
  changed_.notify_all();
}

std::map<int64_t, EpisodeGroup> ReferenceAsker::collect() {
  std::unique_lock lock(mutex_);
  const auto ended = [this] { return failure_ || (waiting_.empty() && busy_ == 0); };
  while (!changed_.wait_for(lock, std::chrono::milliseconds(200), ended)) dist::check_peers();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  return std::exchange(done_, {});
}

// The same passes as those of a batch of this group alone.
bool ReferenceAsker::ask(EpisodeGroup& group) {
  std::vector<EpisodeGroup> one;
  one.push_back(std::move(group));
  TrainingBatch batch(std::move(one));
  const auto alone = dist::alone();
  try {
    batch.score(&Segment::ref_logp, max_tokens_, *alone, [this](const train::ForwardPass& pass) {
      return reference_.ask(pass, temperature_);
    });
  } catch (const generate::remote::NoServer&) {
    return false;  // RlTask computes them
  }
  group = std::move(batch.groups()[0]);
  return true;
}

void ReferenceAsker::work() {
  trace::name_thread("asking for the reference");
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
    if (ending_) return;
    EpisodeGroup group = std::move(waiting_.front());
    waiting_.pop_front();
    ++busy_;
    lock.unlock();
    bool answered = false;
    std::exception_ptr failure;
    try {
      answered = ask(group);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    --busy_;
    if (failure && !failure_) failure_ = failure;
    if (answered) done_[group.id] = std::move(group);
    changed_.notify_all();
  }
}

}  // namespace temper::rl
