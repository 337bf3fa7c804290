#include "temper/ops/weight.h"

#include <ATen/ATen.h>

#include <cmath>
#include <vector>

#include "temper/base/error.h"
#include "temper/ops/product.h"
#include "temper/ops/tensor_data.h"

namespace temper::ops {
namespace {
using kernels::BFloat16Bits;
using kernels::Code;

bool reads_bfloat16(const Weight& w) {
  return w.format == WeightFormat::kBFloat16 || w.format == WeightFormat::kRoundedBFloat16;
}
bool rounds_input(const Weight& w) {
  return w.arithmetic == Arithmetic::kFast && reads_bfloat16(w) &&
         w.values.scalar_type() != at::kDouble;
}

// [k, n] = Wᵀ as it lies in W.
template <class T>
kernels::MatrixView<T> columns(const Weight& w, const T* data) {
  return {data, 1, w.in()};
}
template <class T>
kernels::MatrixView<T> rows(const Weight& w, const T* data) {
  return {data, w.in(), 1};
}

at::Tensor packed(const Weight& w, bool transposed) {
  if (w.quantized || w.values.scalar_type() == at::kDouble) return {};
  const int64_t k = transposed ? w.out() : w.in(), n = transposed ? w.in() : w.out();
  const auto view = [&](const auto* data) { return transposed ? rows(w, data) : columns(w, data); };
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

void check_shapes(const at::Tensor& from, int64_t in, const at::Tensor& to, int64_t out) {
  check(from.is_contiguous() && to.is_contiguous(), "a weight's product: tensors are contiguous");
  check(from.size(1) == in && to.size(0) == from.size(0) && to.size(1) == out, "a weight of ", in,
        " and ", out, " does not lead from ", from.sizes(), " to ", to.sizes());
}

}  // namespace

const char* name_of(WeightFormat format) {
  switch (format) {
    case WeightFormat::kFloat32:
      return "float32";
    case WeightFormat::kRoundedBFloat16:
    case WeightFormat::kBFloat16:
      return "bfloat16";
    case WeightFormat::kInt8:
      return "int8";
    case WeightFormat::kNf4:
      return "nf4";
  }
  return "";
}

kernels::QuantizedMatrix QuantizedWeight::view() const {
  return {code,
          rows,
          width,
          kernels::scale_group(code, width),
          values<uint8_t>(codes),
          values<float>(scales)};
}

WeightFormat QuantizedWeight::format() const {
  return code == Code::kNf4 ? WeightFormat::kNf4 : WeightFormat::kInt8;
}

Weight::Weight(at::Tensor x)
    : format(x.scalar_type() == at::kBFloat16 ? WeightFormat::kBFloat16 : WeightFormat::kFloat32),
      values(std::move(x)) {}

Weight::Weight(std::shared_ptr<const QuantizedWeight> q)
    : format(q->format()), quantized(std::move(q)) {}

Weight Weight::part(int64_t first, int64_t count) const {
  check(!quantized && first % 32 == 0, "a part of a weight begins at a whole panel");
  Weight out;
  out.format = format;
  out.values = values.narrow(0, first, count);
  out.arithmetic = arithmetic;
  if (panels.defined()) out.panels = panels.narrow(0, first * in(), panels.numel() - first * in());
  return out;
}

at::Tensor pack(const Weight& w) { return packed(w, false); }
at::Tensor pack_transposed(const Weight& w) { return packed(w, true); }

void multiply(const at::Tensor& x, const Weight& w, at::Tensor& y, const at::Tensor& bias) {
  if (!w.quantized && y.scalar_type() == at::kDouble)
    return product({x}, {w.values, true}, y, false, bias);
  check_shapes(x, w.in(), y, w.out());
  const kernels::GemmOptions options{.bias = values<float>(bias), .round_left = rounds_input(w)};
  if (w.quantized)
    return kernels::gemm(x.size(0), {values<float>(x), w.in(), 1}, w.quantized->view(),
                         y.mutable_data_ptr<float>(), w.out(), options);
  multiply_packed(x, w.panels.defined() ? w.panels : pack(w), y, options);
}

void multiply_transposed(const at::Tensor& dy, const Weight& w, at::Tensor& dx, bool accumulate,
                         const at::Tensor& panels) {
  if (!w.quantized && dx.scalar_type() == at::kDouble)
    return product({dy}, {w.values}, dx, accumulate);
  check_shapes(dy, w.out(), dx, w.in());
  const kernels::GemmOptions options{.accumulate = accumulate, .round_left = rounds_input(w)};
  if (w.quantized)
    return kernels::gemm_transposed(dy.size(0), {values<float>(dy), w.out(), 1},
                                    w.quantized->view(), dx.mutable_data_ptr<float>(), w.in(),
                                    options);
  multiply_packed(dy, panels.defined() ? panels : pack_transposed(w), dx, options);
}

at::Tensor pack_input(const Weight& w, const at::Tensor& x) {
  if (!rounds_input(w)) return pack(Operand{x});
  const int64_t k = x.size(0), n = x.size(1);
  at::Tensor panels = at::empty({kernels::packed_size(k, n)}, at::kBFloat16);
  kernels::pack(kernels::MatrixView<float>{values<float>(x), n, 1}, k, n,
                reinterpret_cast<BFloat16Bits*>(panels.mutable_data_ptr<at::BFloat16>()));
  return panels;
}

void weight_gradient(const Weight& w, const at::Tensor& dy, const at::Tensor& x, at::Tensor& dw,
                     bool accumulate, const at::Tensor& x_panels) {
  if (!rounds_input(w)) return product({dy, true}, {x}, dw, accumulate, {}, x_panels);
  const at::Tensor panels = x_panels.defined() ? x_panels : pack_input(w, x);
  const int64_t m = dy.size(1), k = dy.size(0), n = x.size(1);
  check(dy.is_contiguous() && dw.is_contiguous() && x.size(0) == k && dw.size(0) == m &&
            dw.size(1) == n,
        "a weight's gradient: ", dy.sizes(), " and ", x.sizes(), " do not give ", dw.sizes());
  kernels::gemm(m, n, k, kernels::MatrixView<float>{values<float>(dy), 1, m}, bfloat16_bits(panels),
                dw.mutable_data_ptr<float>(), n, {.accumulate = accumulate, .round_left = true});
}

at::Tensor read(const Weight& w) {
  if (w.quantized) {
    at::Tensor x = at::empty({w.out(), w.in()}, at::kFloat);
    kernels::dequantize(w.quantized->view(), x.mutable_data_ptr<float>());
    return x;
  }
  if (w.format == WeightFormat::kRoundedBFloat16) return w.values.to(at::kBFloat16).to(at::kFloat);
  return w.format == WeightFormat::kBFloat16 ? w.values.to(at::kFloat) : w.values;
}

std::shared_ptr<const QuantizedWeight> from_codes(Code code, int64_t out, int64_t in,
                                                  const uint8_t* row_major, const float* scale) {
  auto w = std::make_shared<QuantizedWeight>();
  w->code = code;
  w->rows = out;
  w->width = in;
  w->codes = at::empty({kernels::code_bytes(code, out, in)}, at::kByte);
  w->scales = at::empty({kernels::scale_count(code, out, in)}, at::kFloat);
  kernels::pack_codes(code, out, in, row_major, scale, w->codes.mutable_data_ptr<uint8_t>(),
                      w->scales.mutable_data_ptr<float>());
  return w;
}

std::shared_ptr<const QuantizedWeight> quantize(const at::Tensor& values_, Code code) {
  const at::Tensor x = values_.detach().to(at::kFloat).contiguous();
  const int64_t out = x.size(0), in = x.size(1);
  const float* data = values<float>(x);
  std::vector<uint8_t> row_major(static_cast<size_t>(out * in));
  std::vector<float> scale;
  if (code == Code::kNf4) {
    scale.resize((row_major.size() + kernels::kNf4Block - 1) / kernels::kNf4Block);
    kernels::quantize_nf4(data, x.numel(), row_major.data(), scale.data());
  } else {
    scale.resize(static_cast<size_t>(out));
    kernels::quantize_int8(data, out, in, row_major.data(), scale.data());
  }
  for (const float s : scale)
    check<DataError>(std::isfinite(s), "a weight has values that are not finite");
  if (code == Code::kNf4)
    kernels::quantize_absmax(scale.data(), static_cast<int64_t>(scale.size()));
  return from_codes(code, out, in, row_major.data(), scale.data());
}

}  // namespace temper::ops
