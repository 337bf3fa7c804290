// Matrix products on temper/ops/native/kernels/gemm.h.
#include <ATen/ATen.h>

#include "temper/ops/native/kernels/integer/integer_gemm.h"
#include "temper/ops/native/native.h"
#include "temper/ops/native/weight_views.h"

namespace temper::ops {
namespace {
using kernels::BFloat16Bits;

template <class T>
kernels::MatrixView<T> view_of(const Operand& x) {
  const int64_t width = x.tensor.size(1);
  const T* data = values<T>(x.tensor);
  if (x.transposed) return {data, 1, width};
  return {data, width, 1};
}

void multiply_packed(const at::Tensor& a, const at::Tensor& panels, at::Tensor& c,
                     const kernels::GemmOptions& options) {
  const int64_t m = a.size(0), k = a.size(1), n = c.size(1);
  const kernels::MatrixView<float> left{values<float>(a), k, 1};
  float* to = c.mutable_data_ptr<float>();
  if (panels.scalar_type() == at::kBFloat16)
    kernels::gemm(m, n, k, left, bfloat16_bits(panels), to, n, options);
  else
    kernels::gemm(m, n, k, left, values<float>(panels), to, n, options);
}

}  // namespace

at::Tensor NativeBackend::pack(const Weight& w, bool transposed) const {
  if (w.quantized || w.values.scalar_type() == at::kDouble) return {};
  const int64_t k = transposed ? w.out() : w.in(), n = transposed ? w.in() : w.out();
  const auto view = [&](const auto* data) {
    return transposed ? rows_of(w, data) : columns_of(w, data);
  };
  at::Tensor panels =
      at::empty({kernels::packed_size(k, n)}, reads_bfloat16(w) ? at::kBFloat16 : at::kFloat);
  if (!reads_bfloat16(w)) {
    kernels::pack(view(values<float>(w.values)), k, n, panels.mutable_data_ptr<float>());
    return panels;
  }
  auto* bits = reinterpret_cast<BFloat16Bits*>(panels.mutable_data_ptr<at::BFloat16>());
  if (w.format == WeightFormat::kBFloat16)
    kernels::pack(view(bfloat16_bits(w.values)), k, n, bits);
  else
    kernels::pack(view(values<float>(w.values)), k, n, bits);
  return panels;
}

at::Tensor NativeBackend::pack_input(const Weight& w, const at::Tensor& x) const {
  if (!rounds_factors(w)) return pack(Operand{x});
  const int64_t k = x.size(0), n = x.size(1);
  at::Tensor panels = at::empty({kernels::packed_size(k, n)}, at::kBFloat16);
  kernels::pack(kernels::MatrixView<float>{values<float>(x), n, 1}, k, n,
                reinterpret_cast<BFloat16Bits*>(panels.mutable_data_ptr<at::BFloat16>()));
  return panels;
}

at::Tensor NativeBackend::pack(Operand b) const {
  if (b.tensor.scalar_type() == at::kDouble) return {};
  const int64_t k = b.rows(), n = b.columns();
  at::Tensor panels = at::empty({kernels::packed_size(k, n)}, at::kFloat);
  kernels::pack(view_of<float>(b), k, n, panels.mutable_data_ptr<float>());
  return panels;
}

void NativeBackend::multiply(const at::Tensor& x, const Weight& w, at::Tensor& y,
                             const at::Tensor& bias) const {
  if (!w.quantized && y.scalar_type() == at::kDouble)
    return product({x}, {w.values, true}, y, false, bias, {});
  if (w.in_integers())
    return kernels::integer_gemm(x.size(0), {values<float>(x), w.in(), 1}, matrix_of(*w.quantized),
                                 y.mutable_data_ptr<float>(), w.out(), values<float>(bias));
  const kernels::GemmOptions options{.bias = values<float>(bias), .rounding = rounding_of(w)};
  if (w.quantized)
    return kernels::gemm(x.size(0), {values<float>(x), w.in(), 1}, matrix_of(*w.quantized),
                         y.mutable_data_ptr<float>(), w.out(), options);
  multiply_packed(x, w.panels.defined() ? w.panels : pack(w, false), y, options);
}

void NativeBackend::multiply_transposed(const at::Tensor& dy, const Weight& w, at::Tensor& dx,
                                        bool accumulate, const at::Tensor& panels) const {
  if (!w.quantized && dx.scalar_type() == at::kDouble)
    return product({dy}, {w.values}, dx, accumulate, {}, {});
  const kernels::GemmOptions options{.accumulate = accumulate, .rounding = rounding_of(w)};
  if (w.quantized)
    return kernels::gemm_transposed(dy.size(0), {values<float>(dy), w.out(), 1},
                                    matrix_of(*w.quantized), dx.mutable_data_ptr<float>(), w.in(),
                                    options);
  multiply_packed(dy, panels.defined() ? panels : pack(w, true), dx, options);
}

void NativeBackend::weight_gradient(const Weight& w, const at::Tensor& dy, const at::Tensor& x,
                                    at::Tensor& dw, bool accumulate,
                                    const at::Tensor& x_panels) const {
  if (!rounds_factors(w)) return product({dy, true}, {x}, dw, accumulate, {}, x_panels);
  const at::Tensor panels = x_panels.defined() ? x_panels : pack_input(w, x);
  const int64_t m = dy.size(1), k = dy.size(0), n = x.size(1);
  kernels::gemm(m, n, k, kernels::MatrixView<float>{values<float>(dy), 1, m}, bfloat16_bits(panels),
                dw.mutable_data_ptr<float>(), n,
                {.accumulate = accumulate, .rounding = rounding_of(w)});
}

at::Tensor NativeBackend::read(const Weight& w) const {
  if (w.quantized) {
    at::Tensor x = at::empty({w.out(), w.in()}, at::kFloat);
    kernels::dequantize(matrix_of(*w.quantized), x.mutable_data_ptr<float>());
    return in_input_order(*w.quantized, x);
  }
  if (w.format == WeightFormat::kRoundedBFloat16) return w.values.to(at::kBFloat16).to(at::kFloat);
  return w.format == WeightFormat::kBFloat16 ? w.values.to(at::kFloat) : w.values;
}

void NativeBackend::product(Operand a, Operand b, at::Tensor& c, bool accumulate,
                            const at::Tensor& bias, const at::Tensor& panels) const {
  const int64_t m = a.rows(), k = a.columns(), n = b.columns();
  if (c.scalar_type() == at::kDouble) {
    kernels::reference_gemm<double>(m, n, k, view_of<double>(a), view_of<double>(b),
                                    c.mutable_data_ptr<double>(), n, accumulate,
                                    values<double>(bias));
    return;
  }
  const at::Tensor packed = panels.defined() ? panels : pack(b);
  const kernels::GemmOptions options{.accumulate = accumulate, .bias = values<float>(bias)};
  kernels::gemm(m, n, k, view_of<float>(a), packed.const_data_ptr<float>(),
                c.mutable_data_ptr<float>(), n, options);
}

}  // namespace temper::ops
