// Where the parts of a tensor lie that several ranks share out among them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "temper/dist/group.h"

namespace temper::nn {

// A parameter is divided among the ranks of a tensor group along one dimension, and what a rank has
// of it then among those of an FSDP group as a flat range of elements; either may be missing.
struct Placement {
  std::vector<int64_t> whole_shape;

  std::shared_ptr<dist::Group> tensor;  // null: not divided along a dimension
  int64_t dim = 0;
  // Of a tensor that joins several along `dim`, how far each reaches: each is divided. Empty: one.
  std::vector<int64_t> joined;

  std::shared_ptr<dist::Group> fsdp;  // null: not divided into ranges
  // Rank r keeps elements [bounds[r], bounds[r + 1]), row-major; some ranges may be empty.
  std::vector<int64_t> bounds;

  // This rank's part of a whole tensor, a copy: flat where it is a range.
  at::Tensor part(const at::Tensor& whole) const;
  // The runs of this rank's part that lie together in the whole tensor, row-major: where each
  // begins in the part and in the whole, and how many elements it has.
  using Run = std::function<void(int64_t part, int64_t whole, int64_t count)>;
  void each_run(const Run& run) const;
  // The whole tensor of which this rank has `part`, of any dtype. All ranks that share it call
  // this.
  at::Tensor whole(const at::Tensor& part) const;
};

}  // namespace temper::nn
