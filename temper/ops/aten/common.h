// Functions that the files of the aten backend share.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <vector>

namespace temper::ops::aten_impl {

// Numbers that one operation's largest temporary tensor has: 64 MB in float32, and on a processor 4
// MB, as its caches are what counts there. What needs more is computed in parts. A single row or
// key may be larger.
inline int64_t scratch_numbers(at::Device device) {
  return int64_t{1} << (device.is_cpu() ? 20 : 24);
}

// Operations compute numbers: their callers record gradients. Parameters may be written to while an
// object lives.
using BelowAutograd = at::AutoDispatchBelowADInplaceOrView;

// x [rows, columns] as [rows, blocks, kLogitsBlock] and, where columns are left over, [rows, 1,
// those]: the same memory.
std::vector<at::Tensor> blocks_of_columns(const at::Tensor& x);

}  // namespace temper::ops::aten_impl
