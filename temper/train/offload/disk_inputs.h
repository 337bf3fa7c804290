// Inputs of blocks on a disk (train.offload: activations).
//
//   forward   run_unit() hands over the input of block k; a thread writes it while block k
//   computes,
//             and it leaves memory when that of block k + 1 comes.
//   backward  block k asks for its input, and that of block k - 1 is read ahead meanwhile.
//
// So a pass has at most three of them in memory, and the file is a stack: the last input is read
// first, and its place is written again by the next pass.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "temper/nn/block_inputs.h"

namespace temper::train {

class DiskInputs : public nn::BlockInputs {
 public:
  // Tensors of fewer bytes stay in memory.
  static constexpr int64_t kLeastBytes = int64_t{1} << 16;

  DiskInputs(const std::string& directory, const std::string& what);
  ~DiskInputs() override;
  std::unique_ptr<Kept> keep(const at::Tensor& x) override;
  // Gives the disk's space back, where no pass is under way: to make room for a checkpoint.
  void clear();

 private:
  class Stack;
  class OnDisk;
  std::shared_ptr<Stack> stack_;
};

}  // namespace temper::train
