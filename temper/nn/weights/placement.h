// Where the parts of a tensor lie that several ranks share out among them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "temper/dist/group.h"

namespace temper::nn {

// A parameter is divided among the ranks of a tensor group along one dimension, or one of them has
// all of it; what a rank has of it is then divided among those of an FSDP group as a flat range of
// elements. Either may be missing.
struct Placement {
  std::vector<int64_t> whole_shape;

  std::shared_ptr<dist::Group> tensor;  // null: not divided along a dimension
  int64_t dim = 0;
  int owner = -1;  // the rank of `tensor` that has all of it, the others nothing; -1: it is divided
  // Of a tensor that joins several along `dim`, how far each reaches: each is divided. Empty: one.
  std::vector<int64_t> joined;

  std::shared_ptr<dist::Group> fsdp;  // null: not divided into ranges
  // Rank r keeps elements [bounds[r], bounds[r + 1]), row-major; some ranges may be empty.
  std::vector<int64_t> bounds;

  // Whether another rank of `tensor` has all of it.
  bool elsewhere() const { return owner >= 0 && owner != tensor->rank(); }
  // This rank's part of a whole tensor, a copy: flat where it is a range.
  at::Tensor part(const at::Tensor& whole) const;
  // The runs of this rank's part that lie together in the whole tensor, row-major: where each
  // begins in the part and in the whole, and how many elements it has.
  using Run = std::function<void(int64_t part, int64_t whole, int64_t count)>;
  void each_run(const Run& run) const;
  // The whole tensor of which this rank has `part`, of any dtype. All ranks that share it call
  // this.
  at::Tensor whole(const at::Tensor& part) const;
  // What the ranks of `fsdp` have of it together. All of them call this.
  at::Tensor of_fsdp(const at::Tensor& part) const;
  // The whole tensor of the owner on every rank of `tensor`; all of them call this. `held` has its
  // dtype and, on the owner, its values.
  at::Tensor from_owner(const at::Tensor& held, const std::vector<int64_t>& shape) const;
};

}  // namespace temper::nn
