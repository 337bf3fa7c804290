// Tensors one after the other in one buffer, of which each rank of a group keeps an even part.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <utility>
#include <vector>

#include "temper/dist/group.h"
#include "temper/nn/weights/placement.h"

namespace temper::parallel {

class FlatBuffer {
 public:
  explicit FlatBuffer(std::shared_ptr<dist::Group> group) : group_(std::move(group)) {}

  // Before lay_out(); gives the tensor's number.
  size_t add(const at::Tensor& x);
  // Takes this rank's part of every tensor, and lets go of them.
  void lay_out();
  bool empty() const { return offsets_.empty(); }

  // Tensor i as a view of the gathered buffer, and the flat part of it that this rank keeps.
  at::Tensor value(size_t i) const { return values_[i].detach(); }
  at::Tensor kept(size_t i) const { return kept_bytes(i).view(dtypes_[i]).detach(); }
  nn::Placement placement(size_t i) const;

  // allocate() makes the memory of the whole buffer, first and on the thread that uses the values;
  // gather() fills it, by a group of the same ranks.
  void allocate();
  void gather(dist::Group& group);
  void release();

  // Gradients of the whole tensors (float32, undefined: zeros) in one buffer; sum_parts() makes of
  // it the sums over the ranks of the parts that are kept here; they are views of what it gives.
  at::Tensor flatten(std::vector<at::Tensor> gradients) const;
  at::Tensor empty_part() const;
  std::vector<at::Tensor> parts_of(const at::Tensor& sums) const;

 private:
  std::pair<int64_t, int64_t> range(size_t i, int rank) const;
  at::Tensor kept_bytes(size_t i) const;

  std::shared_ptr<dist::Group> group_;
  std::vector<at::Tensor> sources_, values_;
  std::vector<int64_t> offsets_, bytes_;
  std::vector<std::vector<int64_t>> sizes_;
  std::vector<at::ScalarType> dtypes_;
  int64_t total_ = 0, part_ = 0;
  at::Tensor kept_, whole_;
};

}  // namespace temper::parallel
