#include "temper/train/run/checkpoint/saves.h"

#include "temper/base/memory.h"
#include "temper/train/run/checkpoint/snapshot.h"
#include "temper/train/run/memory_limit.h"

namespace temper::train {

// Decided once: later copies take the memory of the first one, which the allocator keeps.
bool Saves::copy_fits(const Trainables& trainables) {
  if (const std::optional<bool> asked = config_.train.save_in_background) return *asked;
  if (config_.train.offloads_optimizer()) return false;  // a copy would be in memory
  if (copies_) return *copies_;
  int64_t bytes = 0;
  for (const auto& [name, tensors] : trained_files(trainables)) bytes += copied_bytes(tensors);
  const bool fits = fits_for_copies(peak_memory_bytes() + bytes, config_);
  copies_ = is_shared_out(trainables) ? mesh_.world->all_reduce_max(fits ? 0 : 1) == 0 : fits;
  return *copies_;
}

void Saves::note(std::optional<int64_t> step) {
  if (step && mesh_.world->rank() == 0) whole_.push_back(*step);
}

void Saves::look(bool parts_written) {
  const int64_t before = std::exchange(step_, -1);  // after an error it is not there
  note(writer_.look(parts_written));
  step_ = before;
}

void Saves::finish() {
  const int64_t before = std::exchange(step_, -1);
  note(writer_.wait());
  step_ = before;
}

void Saves::write(int64_t step, const Trainables& trainables, const Json& values,
                  const TensorMap& tensors, bool in_background) {
  if (mesh_.world->rank() == 0 || is_shared_out(trainables)) {
    if (in_background && copy_fits(trainables)) {
      writer_.start(step, checkpoints_.begin_save(step, trainables, values, tensors, mesh_, true));
    } else {
      checkpoints_.save(step, trainables, values, tensors, mesh_);
      note(step);
    }
  }
  step_ = step;
}

}  // namespace temper::train
