// Quantized weights from codes.
#include <ATen/ATen.h>

#include <vector>

#include "temper/ops/native/native.h"
#include "temper/ops/native/weight_views.h"

namespace temper::ops {
namespace {
using kernels::Float16Bits;

at::Tensor tensor_of(const std::vector<float>& x) {
  return at::from_blob(const_cast<float*>(x.data()), {static_cast<int64_t>(x.size())}, at::kFloat);
}

// A number for each block of the row-major matrix, in panels.
template <class T>
at::Tensor packed_numbers(const Codes& of, int64_t block, const T* from, at::ScalarType type) {
  const int64_t group = scale_group(of.width, block);
  at::Tensor to = at::empty({kernels::group_count(of.rows, of.width, group)}, type);
  kernels::pack_numbers(of.rows, of.width, group, block, from,
                        static_cast<T*>(to.mutable_data_ptr()));
  return to;
}

// In float16 where the format's are and each of them is exact.
at::Tensor packed_numbers(const Codes& of, int64_t block, const std::vector<float>& from) {
  if (row_of(of.format).scale_bits == 16) {
    const at::Tensor exact = tensor_of(from), half = exact.to(at::kHalf);
    if (half.to(at::kFloat).equal(exact))
      return packed_numbers(of, block, static_cast<const Float16Bits*>(half.const_data_ptr()),
                            at::kHalf);
  }
  return packed_numbers(of, block, from.data(), at::kFloat);
}

}  // namespace

std::shared_ptr<const QuantizedWeight> NativeBackend::from_codes(const Codes& codes,
                                                                 at::Device) const {
  auto w = std::make_shared<QuantizedWeight>();
  w->format = codes.format;
  w->rows = codes.rows;
  w->width = codes.width;
  w->block = codes.group > 0 ? codes.group : block_size(codes.format, codes.width);
  w->codes = at::empty({kernels::code_bytes(codes.format, codes.rows, codes.width)}, at::kByte);
  kernels::pack_codes({.format = codes.format,
                       .rows = codes.rows,
                       .width = codes.width,
                       .group = scale_group(codes.width, w->block)},
                      codes.codes.data(), w->codes.mutable_data_ptr<uint8_t>());
  const int64_t super = row_of(codes.format).super_block, block = super > 0 ? super : w->block;
  w->scales = packed_numbers(codes, block, codes.scales);
  if (!codes.offsets.empty()) w->offsets = packed_numbers(codes, block, codes.offsets);
  if (super > 0)
    w->nested_scales = packed_numbers(codes, w->block, codes.sub_scales.data(), at::kChar);
  if (!codes.sub_offsets.empty())
    w->nested_offsets = packed_numbers(
        codes, w->block, reinterpret_cast<const int8_t*>(codes.sub_offsets.data()), at::kChar);
  w->order = order_of(codes, at::kCPU);
  return w;
}

}  // namespace temper::ops
