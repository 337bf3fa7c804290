// Sums of scaled tensors, of all rows or of some.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "temper/base/error.h"
#include "temper/ops/autograd.h"
#include "temper/ops/backend.h"
#include "temper/ops/layers/linear.h"

namespace temper::ops {
namespace {
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

struct AddScaledFunction : Function<AddScaledFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& a, const at::Tensor& b,
                            double scale) {
    ctx->saved_data["scale"] = scale;
    return backend_of(a).add_scaled(a, b, scale);
  }
  static variable_list backward(AutogradContext* ctx, variable_list douts) {
    const double scale = ctx->saved_data["scale"].toDouble();
    return {douts[0], scale == 1.0 ? douts[0] : douts[0] * scale, at::Tensor()};
  }
};

// Tensors: a, then each term's b.
struct AddScaledRowsFunction : Function<AddScaledRowsFunction> {
  // Of the terms, without their tensors.
  static at::Tensor forward(AutogradContext* ctx, std::vector<RowsTerm> terms,
                            at::TensorList tensors) {
    const at::Tensor& a = tensors[0];
    at::Tensor y = a.clone();
    for (size_t i = 0; i < terms.size(); ++i)
      terms[i].rows.of(y).copy_(
          backend_of(a).add_scaled(terms[i].rows.of(a), tensors[i + 1], terms[i].scale));
    keep(ctx, std::move(terms));
    return y;
  }
  static variable_list backward(AutogradContext* ctx, variable_list douts) {
    const at::Tensor dy = douts[0].contiguous();
    variable_list grads{at::Tensor(), dy};
    for (const RowsTerm& term : kept<std::vector<RowsTerm>>(ctx)) {
      const at::Tensor db = term.rows.of(dy);
      grads.push_back(term.scale == 1.0 ? db : db * term.scale);
    }
    return grads;
  }
};

}  // namespace

void RowRange::check_of(int64_t count) const {
  check(is_all(count) || (begin >= 0 && begin < end && end <= count), "rows ", begin, " to ", end,
        " of ", count);
}

at::Tensor add_scaled(const at::Tensor& a, const at::Tensor& b, double scale) {
  check(a.sizes() == b.sizes() && a.is_contiguous() && b.is_contiguous(), "add: shapes ", a.sizes(),
        " and ", b.sizes());
  if (!at::GradMode::is_enabled()) return backend_of(a).add_scaled(a, b, scale);
  return AddScaledFunction::apply(a, b, scale);
}

at::Tensor add_scaled_rows(const at::Tensor& a, const std::vector<RowsTerm>& terms) {
  if (terms.empty()) return a;
  variable_list tensors{a};
  std::vector<RowsTerm> what = terms;
  for (RowsTerm& term : what) {
    term.rows.check_of(a.size(0));
    check(term.rows.of(a).sizes() == term.b.sizes() && a.is_contiguous() && term.b.is_contiguous(),
          "add to rows: shapes ", term.rows.of(a).sizes(), " and ", term.b.sizes());
    tensors.push_back(term.b);
    term.b.reset();
  }
  return AddScaledRowsFunction::apply(std::move(what), at::TensorList(tensors));
}

}  // namespace temper::ops
