#include "temper/models/files/tensors.h"

#include <ATen/ATen.h>

#include <cstring>

namespace temper::models {
namespace {

at::ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return at::kDouble;
    case DType::kFloat32:
      return at::kFloat;
    case DType::kFloat16:
      return at::kHalf;
    case DType::kBFloat16:
      return at::kBFloat16;
    case DType::kInt64:
      return at::kLong;
    case DType::kInt32:
      return at::kInt;
    case DType::kInt16:
      return at::kShort;
    case DType::kInt8:
      return at::kChar;
    case DType::kUInt8:
      return at::kByte;
    case DType::kBool:
      return at::kBool;
    case DType::kFloat8E4M3:
      return at::kFloat8_e4m3fn;
  }
  return at::kFloat;
}
DType dtype_of(at::ScalarType type) {
  if (type == at::kBFloat16) return DType::kBFloat16;
  if (type == at::kHalf) return DType::kFloat16;
  if (type == at::kDouble) return DType::kFloat64;
  if (type == at::kByte) return DType::kUInt8;
  if (type == at::kFloat8_e4m3fn) return DType::kFloat8E4M3;
  if (type == at::kLong) return DType::kInt64;
  if (type == at::kInt) return DType::kInt32;
  return DType::kFloat32;
}

}  // namespace

at::Tensor to_tensor(const TensorView& view, at::ScalarType dtype) {
  const at::ScalarType stored = scalar_type(view.dtype);
  // at::from_blob's deleter keeps the mapping alive.
  const auto options = at::TensorOptions().dtype(stored);
  if (view.num_bytes == 0) return at::empty(view.shape, options.dtype(dtype));
  if (reinterpret_cast<uintptr_t>(view.data) % dtype_size(view.dtype) != 0) {
    at::Tensor copy = at::empty(view.shape, options);
    std::memcpy(copy.mutable_data_ptr(), view.data, view.num_bytes);
    return copy.to(dtype);
  }
  const auto owner = view.owner;
  return at::from_blob(
             const_cast<std::byte*>(view.data), view.shape, [owner](void*) {}, options)
      .to(dtype);
}

TensorView to_view(const at::Tensor& tensor) {
  const at::Tensor contiguous = tensor.detach().to(at::kCPU).contiguous();
  return {dtype_of(contiguous.scalar_type()), contiguous.sizes().vec(),
          static_cast<const std::byte*>(contiguous.const_data_ptr()), contiguous.nbytes(),
          std::make_shared<at::Tensor>(contiguous)};
}

TensorView view_of(const std::vector<int64_t>& shape, at::ScalarType dtype,
                   std::function<at::Tensor()> make) {
  TensorView view;
  view.dtype = dtype_of(dtype);
  view.shape = shape;
  view.num_bytes = shape_bytes(shape, view.dtype).value_or(0);
  view.make = [make = std::move(make)] { return to_view(make()); };
  return view;
}

TensorView whole_view(const nn::Parameter& parameter, at::ScalarType dtype) {
  if (!parameter.placement()) {
    const bool kept =
        !ops::is_quantized(parameter.format()) && parameter.value().scalar_type() == dtype;
    if (kept && parameter.device().is_cpu()) return to_view(parameter.value());
    return view_of(parameter.shape(), dtype,
                   [p = &parameter, dtype] { return p->float_value().detach().to(dtype); });
  }
  TensorView view = view_of(parameter.whole_shape(), dtype,
                            [p = &parameter, dtype] { return p->whole_value().to(dtype); });
  view.own = [p = &parameter, dtype](const TensorView::Put& put) {
    put_runs(p->trained().detach().to(dtype), *p->placement(), put);
  };
  return view;
}

void put_runs(const at::Tensor& part, const nn::Placement& placement, const TensorView::Put& put) {
  const at::Tensor mine = part.to(at::kCPU).contiguous();
  const auto* bytes = static_cast<const std::byte*>(mine.const_data_ptr());
  const auto size = static_cast<int64_t>(mine.element_size());
  placement.each_run([&](int64_t from, int64_t to, int64_t count) {
    put(static_cast<size_t>(to * size), bytes + from * size, static_cast<size_t>(count * size));
  });
}

}  // namespace temper::models
