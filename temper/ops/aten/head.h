// Functions that sweeps over the vocabulary share.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "temper/ops/logits/token_logp.h"

namespace temper::ops::aten_impl {

// x [rows, columns] as [rows, blocks, kLogitsBlock] and, where columns are left over, [rows, 1,
// those]: the same memory.
std::vector<at::Tensor> blocks_of_columns(const at::Tensor& x);

}  // namespace temper::ops::aten_impl
