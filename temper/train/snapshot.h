// Copies of tensors that training goes on to change, for a thread that writes them meanwhile.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>

#include "temper/io/safetensors.h"
#include "temper/train/roles.h"

namespace temper::train {

// Contents of the files NAME.safetensors and NAME.optimizer.safetensors of a trainable, by their
// names. They alias the weights and moments.
std::map<std::string, TensorMap> trained_files(const Trainables& trainables);

// Memory for copies, which later copies use again: the pages of fresh memory cost several times
// what copying does. Not thread-safe; the copies may go on any thread.
class SnapshotMemory {
 public:
  // A tensor of so many bytes, which nobody else holds. Memory whose copy is gone is used again
  // where its size is the same.
  at::Tensor take(int64_t bytes);
  // Gives back what no copy is in: called between a copy and the next one, this keeps what the next
  // one can use.
  void drop_unused();

 private:
  std::multimap<int64_t, at::Tensor> taken_;  // by size, whether or not their copies are gone
};

// The tensors with bytes of their own, in `memory`. One that is made when it is written
// (TensorView::make) is made here; of one that ranks share out (TensorView::own) this rank's runs
// are copied.
TensorMap copy_of(const TensorMap& tensors, SnapshotMemory& memory);

// Bytes that copy_of() takes of these on this rank, at most.
int64_t copied_bytes(const TensorMap& tensors);

}  // namespace temper::train
