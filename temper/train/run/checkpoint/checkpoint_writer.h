// Writes checkpoints on a thread of its own, one at a time.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <optional>

#include "temper/base/work_queue.h"
#include "temper/dist/mesh.h"
#include "temper/train/run/checkpoint/checkpoint.h"

namespace temper::train {

// A save has two parts: what ranks write side by side, and what rank 0 does when all of them have
// written (Checkpoints::Writing). All collectives are on the caller's thread: where ranks share out
// trained weights, all of them call the members below in the same order, except is_writing_parts
// and before_change.
class CheckpointWriter {
 public:
  explicit CheckpointWriter(dist::Mesh mesh) : mesh_(std::move(mesh)) {}
  // Waits for what this rank writes. A checkpoint of which other ranks write parts is left
  // unfinished then, and the older ones are whole.
  ~CheckpointWriter() = default;

  // Begins to write; no other save may be on its way.
  void start(int64_t step, Checkpoints::Writing writing);
  // Called before weights or moments change: what is not written yet is copied.
  void before_change();
  // Whether this rank is still writing a part beside others.
  bool is_writing_parts() const;
  // Called between steps. `parts_written`: no rank is_writing_parts(). Returns the step of a
  // checkpoint that has become whole on this rank, once. Throws what the writing threw; it is then
  // over.
  std::optional<int64_t> look(bool parts_written);
  // The same, once everything is written.
  std::optional<int64_t> wait();

 private:
  enum class State { kIdle, kParts, kFinishing };
  std::future<void> begin(std::function<void()> work);
  void end_parts();
  std::optional<int64_t> end();

  dist::Mesh mesh_;
  State state_ = State::kIdle;
  int64_t step_ = 0;
  Checkpoints::Writing writing_;
  std::future<void> running_;
  std::unique_ptr<WorkQueue> queue_;  // last: its thread uses the others
};

}  // namespace temper::train
