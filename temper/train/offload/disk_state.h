// State tensors of an optimizer on a disk (train.offload: optimizer). An update goes through them
// in pieces: one is read ahead and one is written by a thread while that between them is updated,
// so that three are in memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "temper/train/offload/scratch_file.h"

namespace temper::train {

class DiskState {
 public:
  // Elements of a piece, where a tensor may be updated in pieces.
  static constexpr int64_t kPiece = int64_t{1} << 20;

  // A tensor, or a run of its elements.
  struct Part {
    int64_t place = 0;  // byte of the file
    std::vector<int64_t> shape;
    at::ScalarType dtype = at::kFloat;
    int64_t size() const;
    Part run(int64_t first, int64_t count) const;  // elements
  };
  // State tensors that are updated together.
  using Piece = std::vector<Part>;

  DiskState(const std::string& directory, const std::string& what) : file_(directory, what) {}
  // Adds a tensor; all are zeros at first, and have their disk space after reserve().
  Part add(std::vector<int64_t> shape, at::ScalarType dtype);
  void reserve() { file_.reserve(end_); }

  // On the CPU. Any thread may call read().
  at::Tensor read(const Part& part);
  void write(const Part& part, const at::Tensor& values);
  // Calls update(k, its tensors on `device`), which changes them, for each piece in order. What it
  // throws is thrown, as RunError of the disk is: some pieces then have changed and others have
  // not.
  void each(std::span<const Piece> pieces, at::Device device,
            const std::function<void(size_t k, std::span<const at::Tensor> state)>& update);

 private:
  struct Loaded;
  Loaded load(const Piece& piece);
  int64_t end_ = 0;
  ScratchFile file_;
};

}  // namespace temper::train
