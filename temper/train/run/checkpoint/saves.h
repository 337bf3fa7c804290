// The checkpoints that the process of a run saves, beside training where a copy of the state fits
// into memory.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "temper/base/json.h"
#include "temper/dist/mesh.h"
#include "temper/train/config.h"
#include "temper/train/roles/roles.h"
#include "temper/train/run/checkpoint/checkpoint.h"
#include "temper/train/run/checkpoint/checkpoint_writer.h"

namespace temper::train {

// What a save in the background threw is thrown by whichever of write(), look() and finish() is
// called next. Where ranks share out trained weights, all of them call these in the same order.
class Saves {
 public:
  // Config and checkpoints outlive it.
  Saves(const RunConfig& config, const Checkpoints& checkpoints, const dist::Mesh& mesh)
      : config_(config), checkpoints_(checkpoints), mesh_(mesh), writer_(mesh) {}

  // Whether this process saved the step last, or is saving it, and nothing of its state has changed
  // since.
  bool has(int64_t step) const { return step_ == step; }
  // The state of the step has changed: it is to be saved again.
  void forget() { step_ = -1; }
  // Saves a step, after finish(). `in_background`: a thread writes the state while the caller goes
  // on, unless train.save_in_background forbids that or a copy of it does not fit into memory.
  void write(int64_t step, const Trainables& trainables, const Json& values,
             const TensorMap& tensors, bool in_background);
  // Called before the weights change: a save in the background copies what it has not written.
  void before_change() { writer_.before_change(); }
  // Whether this rank is still writing its part of a checkpoint beside others.
  bool is_writing_parts() const { return writer_.is_writing_parts(); }
  // Goes on with a save in the background. `parts_written`: no rank is_writing_parts().
  void look(bool parts_written);
  // Waits until the save in the background is whole.
  void finish();
  // Steps whose checkpoints have become whole since the last call, on the rank that writes.
  std::vector<int64_t> take_whole() { return std::exchange(whole_, {}); }

 private:
  bool copy_fits(const Trainables& trainables);
  void note(std::optional<int64_t> step);

  const RunConfig& config_;
  const Checkpoints& checkpoints_;
  dist::Mesh mesh_;
  int64_t step_ = -1;           // of the last checkpoint that this process wrote, or writes
  std::vector<int64_t> whole_;  // take_whole()
  std::optional<bool> copies_;  // whether copies of the state fit into memory
  CheckpointWriter writer_;     // last: its thread uses the others
};

}  // namespace temper::train
