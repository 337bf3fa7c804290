// Rows of tables by index.
#include <ATen/ATen.h>

#include "temper/ops/native/kernels/loops.h"
#include "temper/ops/native/kernels/rows.h"
#include "temper/ops/native/native.h"
#include "temper/ops/native/weight_views.h"
#include "temper/ops/tensor_data.h"

namespace temper::ops {
namespace {

constexpr int64_t kManyNumbers = 32768;  // from which a second thread pays

// Rows as products see them: stored in bfloat16, or float32 that is rounded to it.
void gather_bfloat16(const Weight& table, const int64_t* id, double by, at::Tensor& out) {
  const int64_t n = out.size(0), width = out.size(1);
  const bool stored = table.format == WeightFormat::kBFloat16;
  const kernels::BFloat16Bits* bits = stored ? bfloat16_bits(table.values) : nullptr;
  const float* exact = stored ? nullptr : values<float>(table.values);
  const float scale = static_cast<float>(by);
  float* to = out.mutable_data_ptr<float>();
  kernels::for_each_index(n, n * width > kManyNumbers, [=](int64_t r) {
    const int64_t from = id[r] * width;
    for (int64_t j = 0; j < width; ++j)
      to[r * width + j] = scale * kernels::to_float(stored ? bits[from + j]
                                                           : kernels::to_bfloat16(exact[from + j]));
  });
}

// Rows of a quantized table, columns in the order of its codes.
void gather_quantized(const kernels::QuantizedMatrix& table, const int64_t* id, double by,
                      at::Tensor& out) {
  const int64_t n = out.size(0), width = out.size(1);
  const float scale = static_cast<float>(by);
  float* to = out.mutable_data_ptr<float>();
#pragma omp parallel for schedule(static) if (n * width > kManyNumbers / 8)
  for (int64_t r = 0; r < n; ++r) {
    float* row = to + r * width;
    kernels::dequantize_row(table, id[r], row);
    for (int64_t j = 0; j < width; ++j) row[j] = scale * row[j];
  }
}

}  // namespace

at::Tensor NativeBackend::gather_rows(const Weight& table, const at::Tensor& ids,
                                      double scale) const {
  const int64_t n = ids.numel(), width = table.in();
  if (table.format != WeightFormat::kFloat32) {
    at::Tensor out = at::empty({n, width}, at::kFloat);
    if (table.quantized) {
      gather_quantized(matrix_of(*table.quantized), values<int64_t>(ids), scale, out);
      return in_input_order(*table.quantized, out);
    }
    gather_bfloat16(table, values<int64_t>(ids), scale, out);
    return out;
  }
  at::Tensor out = at::empty({n, width}, table.values.options());
  dispatch(table.values, [&](auto zero) {
    using T = decltype(zero);
    kernels::row_kernels<T>().gather_rows(n, width, values<T>(table.values), values<int64_t>(ids),
                                          static_cast<T>(scale), out.mutable_data_ptr<T>());
  });
  return out;
}

void NativeBackend::scatter_rows(const at::Tensor& x, const at::Tensor& ids, double scale,
                                 at::Tensor& to) const {
  dispatch(x, [&](auto zero) {
    using T = decltype(zero);
    kernels::row_kernels<T>().scatter_rows(x.size(0), x.size(1), values<T>(x), values<int64_t>(ids),
                                           static_cast<T>(scale), to.mutable_data_ptr<T>());
  });
}

}  // namespace temper::ops
