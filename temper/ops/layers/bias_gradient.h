// The gradient of a bias, which every row adds.
#pragma once

#include "temper/ops/autograd.h"
#include "temper/ops/pointwise.h"

namespace temper::ops {

// That of input `place` of the call, from the gradient dy [rows, out] of what it was added to: in
// `grads`, or in the input's sum over rows.
inline void give_bias_gradient(const Gradients& d, size_t place, const at::Tensor& dy,
                               Tensors& grads) {
  RowSum* const sum = d.row_sum(place);
  if (!sum) {
    grads[place] = sum_of_rows(dy);
    return;
  }
  sum->sum = add_rows(sum->sum, dy);
  sum->finish = [type = dy.scalar_type()](const at::Tensor& rows) { return rows.to(type); };
}

}  // namespace temper::ops
