#include "temper/train/run/checkpoint/checkpoint_writer.h"

#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include "temper/base/error.h"
#include "temper/dist/peer_watch.h"
#include "temper/metrics/trace.h"
#include "temper/train/run/checkpoint/parallel_write.h"
#include "temper/train/run/checkpoint/snapshot.h"

namespace temper::train {
namespace {

// Behind the threads that train: those wait for each other at the end of every loop, so that each
// time slice that one of them loses is lost to all.
constexpr int kNiceness = 10;

void begin_thread() {
  trace::name_thread("checkpoints");
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kNiceness);  // of this thread alone
}

bool is_ready(const std::future<void>& result) {
  return result.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

}  // namespace

std::future<void> CheckpointWriter::begin(std::function<void()> work) {
  if (!queue_) queue_ = std::make_unique<WorkQueue>(WorkQueueOptions{.on_start = begin_thread});
  return queue_->run([work = std::move(work), saving = std::make_unique<dist::Saving>()] {
    const trace::Span span("write checkpoint");
    work();
  });
}

void CheckpointWriter::start(int64_t step, Checkpoints::Writing writing) {
  check(state_ == State::kIdle, "a checkpoint is begun while another one is being written");
  step_ = step;
  writing_ = std::move(writing);
  if (writing_.parts) {
    running_ = begin(std::exchange(writing_.parts, {}));
    state_ = State::kParts;
  } else if (writing_.finish) {
    running_ = begin(std::exchange(writing_.finish, {}));
    state_ = State::kFinishing;
  }
}

void CheckpointWriter::before_change() {
  if (state_ == State::kIdle || !writing_.snapshot) return;
  const trace::Span span("copy what a checkpoint has not written");
  std::exchange(writing_.snapshot, {})->complete();
}

bool CheckpointWriter::is_writing_parts() const {
  return state_ == State::kParts && !is_ready(running_);
}

// On all ranks: each has written, or failed to.
void CheckpointWriter::end_parts() {
  state_ = State::kIdle;
  on_all(*mesh_.world, [this] { running_.get(); });
  if (!writing_.finish) return;
  running_ = begin(std::exchange(writing_.finish, {}));
  state_ = State::kFinishing;
}

std::optional<int64_t> CheckpointWriter::end() {
  state_ = State::kIdle;
  running_.get();
  return step_;
}

std::optional<int64_t> CheckpointWriter::look(bool parts_written) {
  if (state_ == State::kParts && parts_written) end_parts();
  if (state_ != State::kFinishing || !is_ready(running_)) return {};
  return end();
}

std::optional<int64_t> CheckpointWriter::wait() {
  if (state_ == State::kParts) {
    dist::wait_for(running_);
    end_parts();
  }
  if (state_ != State::kFinishing) return {};
  dist::wait_for(running_, [] {});  // it needs no other rank
  return end();
}

}  // namespace temper::train
