// Sums of scaled tensors, of all rows or of some.
#include <ATen/ATen.h>

#include <utility>

#include "temper/base/error.h"
#include "temper/ops/autograd.h"
#include "temper/ops/backend.h"
#include "temper/ops/layers/linear.h"

namespace temper::ops {
namespace {

at::Tensor times(const at::Tensor& x, double scale) { return scale == 1.0 ? x : x * scale; }

}  // namespace

void RowRange::check_of(int64_t count) const {
  check(is_all(count) || (begin >= 0 && begin < end && end <= count), "rows ", begin, " to ", end,
        " of ", count);
}

at::Tensor add_scaled(const at::Tensor& a, const at::Tensor& b, double scale) {
  check(a.sizes() == b.sizes() && a.is_contiguous() && b.is_contiguous(), "add: shapes ", a.sizes(),
        " and ", b.sizes());
  Recording call({a, b});
  return call.output(backend_of(a).add_scaled(a, b, scale),
                     [scale](const Gradients& d) -> Tensors { return {d[0], times(d[0], scale)}; });
}

at::Tensor add_scaled_rows(const at::Tensor& a, const std::vector<RowsTerm>& terms) {
  if (terms.empty()) return a;
  Tensors inputs{a};
  for (const RowsTerm& term : terms) {
    term.rows.check_of(a.size(0));
    check(term.rows.of(a).sizes() == term.b.sizes() && a.is_contiguous() && term.b.is_contiguous(),
          "add to rows: shapes ", term.rows.of(a).sizes(), " and ", term.b.sizes());
    inputs.push_back(term.b);
  }
  Recording call(std::move(inputs));
  const at::Tensor y = a.clone();
  std::vector<std::pair<RowRange, double>> scales;
  for (const auto& [b, rows, scale] : terms) {
    rows.of(y).copy_(backend_of(a).add_scaled(rows.of(a), b, scale));
    scales.emplace_back(rows, scale);
  }
  return call.output(y, [scales](const Gradients& d) {
    Tensors grads{d[0]};
    for (const auto& [rows, scale] : scales) grads.push_back(times(rows.of(d[0]), scale));
    return grads;
  });
}

}  // namespace temper::ops
