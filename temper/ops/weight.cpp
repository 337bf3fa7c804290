#include "temper/ops/weight.h"

#include <ATen/ATen.h>

#include <cmath>
#include <vector>

#include "temper/base/error.h"
#include "temper/ops/backend.h"
#include "temper/ops/native/kernels/quantized.h"

namespace temper::ops {
namespace {

void check_shapes(const at::Tensor& from, int64_t in, const at::Tensor& to, int64_t out) {
  check(from.is_contiguous() && to.is_contiguous(), "a weight's product: tensors are contiguous");
  check(from.size(1) == in && to.size(0) == from.size(0) && to.size(1) == out, "a weight of ", in,
        " and ", out, " does not lead from ", from.sizes(), " to ", to.sizes());
}

}  // namespace

bool is_in_panels(const QuantizedWeight& w) {
  return w.codes.numel() == kernels::code_bytes(w.format, w.rows, w.width) &&
         w.scales.numel() == kernels::scale_count(w.format, w.rows, w.width);
}
int64_t panel_width() { return kernels::panel_width(); }

Weight::Weight(at::Tensor x)
    : format(x.scalar_type() == at::kBFloat16 ? WeightFormat::kBFloat16 : WeightFormat::kFloat32),
      values(std::move(x)) {}

Weight::Weight(std::shared_ptr<const QuantizedWeight> q)
    : format(q->format), quantized(std::move(q)) {}

Weight Weight::part(int64_t first, int64_t count) const {
  check(!quantized && first % 32 == 0, "a part of a weight begins at a whole panel");
  Weight out;
  out.format = format;
  out.values = values.narrow(0, first, count);
  out.arithmetic = arithmetic;
  if (panels.defined()) out.panels = panels.narrow(0, first * in(), panels.numel() - first * in());
  return out;
}

at::Tensor pack(const Weight& w) { return backend_of(w.tensor()).pack(w, false); }
at::Tensor pack_transposed(const Weight& w) { return backend_of(w.tensor()).pack(w, true); }
at::Tensor pack_input(const Weight& w, const at::Tensor& x) {
  return backend_of(x).pack_input(w, x);
}

void multiply(const at::Tensor& x, const Weight& w, at::Tensor& y, const at::Tensor& bias) {
  check_shapes(x, w.in(), y, w.out());
  backend_of(y).multiply(x, w, y, bias);
}

void multiply_transposed(const at::Tensor& dy, const Weight& w, at::Tensor& dx, bool accumulate,
                         const at::Tensor& panels) {
  check_shapes(dy, w.out(), dx, w.in());
  backend_of(dx).multiply_transposed(dy, w, dx, accumulate, panels);
}

void weight_gradient(const Weight& w, const at::Tensor& dy, const at::Tensor& x, at::Tensor& dw,
                     bool accumulate, const at::Tensor& x_panels) {
  check(dy.is_contiguous() && x.is_contiguous() && dw.is_contiguous() && x.size(0) == dy.size(0) &&
            dw.size(0) == dy.size(1) && dw.size(1) == x.size(1),
        "a weight's gradient: ", dy.sizes(), " and ", x.sizes(), " do not give ", dw.sizes());
  backend_of(dw).weight_gradient(w, dy, x, dw, accumulate, x_panels);
}

at::Tensor read(const Weight& w) { return backend_of(w.tensor()).read(w); }

std::shared_ptr<const QuantizedWeight> from_codes(WeightFormat format, int64_t out, int64_t in,
                                                  const uint8_t* row_major, const float* scale,
                                                  at::Device device) {
  return backend_of(device).from_codes(format, out, in, row_major, scale, device);
}

std::shared_ptr<const QuantizedWeight> quantize(const at::Tensor& values, WeightFormat format,
                                                at::Device device) {
  check(rounds_weights(format), row_of(format).name,
        " weights are those of files; no others are converted to it");
  const at::Tensor x = values.detach().to(at::kCPU, at::kFloat).contiguous();
  const int64_t out = x.size(0), in = x.size(1);
  const float* data = x.const_data_ptr<float>();
  std::vector<uint8_t> row_major(static_cast<size_t>(out * in));
  std::vector<float> scale(static_cast<size_t>(block_count(format, out, in)));
  if (format == WeightFormat::kNf4)
    kernels::quantize_nf4(data, x.numel(), row_major.data(), scale.data());
  else
    kernels::quantize_int8(data, out, in, row_major.data(), scale.data());
  for (const float s : scale)
    check<DataError>(std::isfinite(s), "a weight has values that are not finite");
  if (format == WeightFormat::kNf4)
    kernels::quantize_absmax(scale.data(), static_cast<int64_t>(scale.size()));
  return from_codes(format, out, in, row_major.data(), scale.data(), device);
}

}  // namespace temper::ops
