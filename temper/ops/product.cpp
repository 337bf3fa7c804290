#include "temper/ops/product.h"

#include <ATen/ATen.h>

#include "temper/ops/tensor_data.h"

namespace temper::ops {
namespace {
template <class T>
kernels::MatrixView<T> view(const Operand& x, const T* data) {
  const int64_t width = x.tensor.size(1);
  if (x.transposed) return {data, 1, width};
  return {data, width, 1};
}
template <class T>
kernels::MatrixView<T> view(const Operand& x) {
  return view(x, values<T>(x.tensor));
}
int64_t rows(const Operand& x) { return x.tensor.size(x.transposed ? 1 : 0); }
int64_t columns(const Operand& x) { return x.tensor.size(x.transposed ? 0 : 1); }
}  // namespace

at::Tensor pack(Operand b) {
  if (b.tensor.scalar_type() == at::kDouble) return {};
  const int64_t k = rows(b), n = columns(b);
  at::Tensor panels = at::empty({kernels::packed_size(k, n)}, at::kFloat);
  kernels::pack(view<float>(b), k, n, panels.mutable_data_ptr<float>());
  return panels;
}

void product(Operand a, Operand b, at::Tensor& c, bool accumulate, const at::Tensor& bias,
             const at::Tensor& panels) {
  const int64_t m = rows(a), k = columns(a), n = columns(b);
  check(a.tensor.is_contiguous() && b.tensor.is_contiguous() && c.is_contiguous(),
        "product: tensors must be contiguous");
  check(rows(b) == k && c.size(0) == m && c.size(1) == n, "product: shapes [", m, ", ", k,
        "] and [", rows(b), ", ", n, "] do not give ", c.sizes());
  if (c.scalar_type() == at::kDouble) {
    kernels::reference_gemm<double>(m, n, k, view<double>(a), view<double>(b),
                                    c.mutable_data_ptr<double>(), n, accumulate,
                                    values<double>(bias));
    return;
  }
  const at::Tensor packed = panels.defined() ? panels : pack(b);
  const kernels::GemmOptions options{.accumulate = accumulate, .bias = values<float>(bias)};
  kernels::gemm(m, n, k, view<float>(a), packed.const_data_ptr<float>(),
                c.mutable_data_ptr<float>(), n, options);
}

}  // namespace temper::ops
