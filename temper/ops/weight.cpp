#include "temper/ops/weight.h"

#include <ATen/ATen.h>

#include <algorithm>
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

// Rows of a panel's tensor, of which each takes `row` elements for a row.
at::Tensor rows_of_panels(const at::Tensor& x, int64_t row, int64_t first, int64_t count) {
  const int64_t panel = kernels::panel_width(), rows = (count + panel - 1) / panel * panel;
  return x.defined() ? x.narrow(0, first * row, rows * row) : x;
}

std::shared_ptr<const QuantizedWeight> rows_of(const QuantizedWeight& w, int64_t first,
                                               int64_t count) {
  auto out = std::make_shared<QuantizedWeight>(w);
  out->rows = count;
  if (w.layout == QuantizedWeight::Layout::kRows) {
    out->first_row += first;
    return out;
  }
  const int64_t groups = w.width / scale_group(w.width, w.block),
                super = row_of(w.format).super_block,
                numbers = super > 0 ? w.width / super : groups;
  out->codes = w.codes.narrow(0, kernels::code_bytes(w.format, first, w.width),
                              kernels::code_bytes(w.format, count, w.width));
  for (at::Tensor QuantizedWeight::* x : {&QuantizedWeight::scales, &QuantizedWeight::offsets})
    out.get()->*x = rows_of_panels(w.*x, numbers, first, count);
  for (at::Tensor QuantizedWeight::* x :
       {&QuantizedWeight::nested_scales, &QuantizedWeight::nested_offsets})
    out.get()->*x = rows_of_panels(w.*x, groups, first, count);
  return out;
}

}  // namespace

bool is_in_panels(const QuantizedWeight& w) {
  const int64_t group = scale_group(w.width, w.block);
  return w.codes.numel() == kernels::code_bytes(w.format, w.rows, w.width) &&
         w.scales.numel() == kernels::group_count(w.rows, w.width, group);
}
at::Tensor order_of(const Codes& codes, at::Device device) {
  if (codes.order.empty()) return {};
  return at::tensor(at::ArrayRef<int32_t>(codes.order), at::kInt).to(device, at::kLong);
}
at::Tensor in_input_order(const QuantizedWeight& w, const at::Tensor& values) {
  return w.order.defined() ? at::empty_like(values).index_copy_(1, w.order, values) : values;
}
int64_t panel_width() { return kernels::panel_width(); }

Weight::Weight(at::Tensor x)
    : format(x.scalar_type() == at::kBFloat16 ? WeightFormat::kBFloat16 : WeightFormat::kFloat32),
      values(std::move(x)) {}

Weight::Weight(std::shared_ptr<const QuantizedWeight> q)
    : format(q->format), quantized(std::move(q)) {}

Weight Weight::part(int64_t first, int64_t count) const {
  check(first % 32 == 0, "a part of a weight begins at a whole panel");
  Weight out;
  out.format = format;
  out.arithmetic = arithmetic;
  if (quantized) {
    out.quantized = rows_of(*quantized, first, count);
    return out;
  }
  out.values = values.narrow(0, first, count);
  if (panels.defined()) out.panels = panels.narrow(0, first * in(), panels.numel() - first * in());
  return out;
}

bool is_ordered(const Weight& w) { return w.quantized && w.quantized->order.defined(); }
at::Tensor in_code_order(const Weight& w, const at::Tensor& x) {
  return is_ordered(w) ? x.index_select(1, w.quantized->order) : x;
}

at::Tensor pack(const Weight& w) { return backend_of(w.tensor()).pack(w, false); }
at::Tensor pack_transposed(const Weight& w) { return backend_of(w.tensor()).pack(w, true); }
at::Tensor pack_input(const Weight& w, const at::Tensor& x) {
  return backend_of(x).pack_input(w, x);
}

void multiply(const at::Tensor& x, const Weight& w, at::Tensor& y, const at::Tensor& bias) {
  check_shapes(x, w.in(), y, w.out());
  backend_of(y).multiply(in_code_order(w, x), w, y, bias);
}

void multiply_transposed(const at::Tensor& dy, const Weight& w, at::Tensor& dx, bool accumulate,
                         const at::Tensor& panels) {
  check_shapes(dy, w.out(), dx, w.in());
  if (!is_ordered(w)) return backend_of(dx).multiply_transposed(dy, w, dx, accumulate, panels);
  at::Tensor ordered = accumulate ? in_code_order(w, dx) : at::empty_like(dx);
  backend_of(dx).multiply_transposed(dy, w, ordered, accumulate, panels);
  dx.index_copy_(1, w.quantized->order, ordered);
}

void weight_gradient(const Weight& w, const at::Tensor& dy, const at::Tensor& x, at::Tensor& dw,
                     bool accumulate, const at::Tensor& x_panels) {
  check(dy.is_contiguous() && x.is_contiguous() && dw.is_contiguous() && x.size(0) == dy.size(0) &&
            dw.size(0) == dy.size(1) && dw.size(1) == x.size(1),
        "a weight's gradient: ", dy.sizes(), " and ", x.sizes(), " do not give ", dw.sizes());
  backend_of(dw).weight_gradient(w, dy, x, dw, accumulate, x_panels);
}

void trained_gradient(const Weight& w, int64_t first, const at::Tensor& dy, const at::Tensor& x,
                      at::Tensor& drows) {
  if (!drows.defined()) return;
  const std::vector<int64_t>& id = w.trained->id;
  const auto begin = std::lower_bound(id.begin(), id.end(), first),
             end = std::lower_bound(begin, id.end(), first + dy.size(1));
  if (begin == end) return;
  std::vector<int64_t> columns;
  for (auto i = begin; i != end; ++i) columns.push_back(*i - first);
  at::Tensor to = drows.narrow(0, begin - id.begin(), end - begin);
  weight_gradient(w, dy.index_select(1, indices(columns, dy)), x, to, true);
}

at::Tensor read(const Weight& w) { return backend_of(w.tensor()).read(w); }

std::shared_ptr<const QuantizedWeight> from_codes(const Codes& codes, at::Device device) {
  check_codes(codes);
  return backend_of(device).from_codes(codes, device);
}

std::shared_ptr<const QuantizedWeight> quantize(const at::Tensor& values, WeightFormat format,
                                                at::Device device) {
  check(rounds_weights(format), row_of(format).name,
        " weights are those of files; no others are converted to it");
  const at::Tensor x = values.detach().to(at::kCPU, at::kFloat).contiguous();
  const int64_t out = x.size(0), in = x.size(1);
  const float* data = x.const_data_ptr<float>();
  Codes to{.format = format, .rows = out, .width = in};
  to.codes.resize(static_cast<size_t>(out * in));
  to.scales.resize(static_cast<size_t>(block_count(format, out, in)));
  if (format == WeightFormat::kNf4)
    kernels::quantize_nf4(data, x.numel(), to.codes.data(), to.scales.data());
  else
    kernels::quantize_int8(data, out, in, to.codes.data(), to.scales.data());
  for (const float s : to.scales)
    check<DataError>(std::isfinite(s), "a weight has values that are not finite");
  if (format == WeightFormat::kNf4)
    kernels::quantize_absmax(to.scales.data(), static_cast<int64_t>(to.scales.size()));
  return from_codes(to, device);
}

}  // namespace temper::ops
