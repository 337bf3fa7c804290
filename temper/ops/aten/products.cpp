// Matrix products.
#include <ATen/ATen.h>

#include <algorithm>

#include "temper/ops/aten/aten.h"
#include "temper/ops/aten/common.h"
#include "temper/ops/aten/dequantized.h"
#include "temper/ops/aten/integer_products.h"
#include "temper/ops/rounding.h"

namespace temper::ops {
namespace aten_impl {
namespace {

bool is_bfloat16(const Weight& w) {
  return (w.format == WeightFormat::kBFloat16 || w.format == WeightFormat::kRoundedBFloat16) &&
         w.values.scalar_type() != at::kDouble;
}

// The factors of products that round both to bfloat16. Where a device multiplies bfloat16 and sums
// in float32 they stay in it.
at::Tensor rounded(const at::Tensor& x) {
  const at::Tensor y = x.to(at::kBFloat16);
  return x.is_cuda() ? y : y.to(at::kFloat);
}

// to (+)= a b, of equal dtype; bfloat16 factors are summed in float32.
void multiply_into(at::Tensor to, const at::Tensor& a, const at::Tensor& b, bool accumulate) {
  if (a.scalar_type() == at::kBFloat16) {
    accumulate ? to.add_(at::mm(a, b, at::kFloat)) : to.copy_(at::mm(a, b, at::kFloat));
    return;
  }
  if (accumulate)
    at::addmm_out(to, to, a, b);
  else
    at::mm_out(to, a, b);
}

// Rows [first, first + count) of a weight as products read them.
at::Tensor factor(const Weight& w, int64_t first, int64_t count) {
  if (w.quantized) {
    const at::Tensor rows = dequantized(*w.quantized, first, count);
    return rounds_factors(w) ? rounded(rows) : rows;
  }
  const at::Tensor rows = w.values.narrow(0, first, count);
  if (!is_bfloat16(w)) return rows;
  return rounds_factors(w) ? rounded(rows) : rows.to(at::kBFloat16).to(at::kFloat);
}

// Rows of the weight at once: all of those that are read as they lie, else as many as fit.
int64_t rows_at_once(const Weight& w) {
  const bool as_it_lies =
      !w.quantized && (!is_bfloat16(w) || (rounds_factors(w) && w.values.is_cuda()));
  if (as_it_lies) return std::max<int64_t>(w.out(), 1);
  return std::max<int64_t>(scratch_numbers(w.tensor().device()) / std::max<int64_t>(w.in(), 1), 1);
}

// Calls body(first, count, those rows of the weight).
template <class Body>
void each_factor(const Weight& w, Body body) {
  const int64_t most = rows_at_once(w);
  for (int64_t first = 0; first < w.out(); first += most) {
    const int64_t count = std::min(most, w.out() - first);
    body(first, count, factor(w, first, count));
  }
}

at::Tensor matrix(const Operand& x) { return x.transposed ? x.tensor.t() : x.tensor; }

}  // namespace
}  // namespace aten_impl

// TensorFloat-32 keeps ten bits of a float32 factor: not what is asked for.
AtenBackend::AtenBackend() {
  if (at::globalContext().allowTF32CuBLAS()) at::globalContext().setAllowTF32CuBLAS(false);
}

const Backend& aten_backend() {
  static const AtenBackend backend;
  return backend;
}

at::Tensor AtenBackend::pack(const Weight&, bool) const { return {}; }
at::Tensor AtenBackend::pack_input(const Weight&, const at::Tensor&) const { return {}; }
at::Tensor AtenBackend::pack(Operand) const { return {}; }

void AtenBackend::multiply(const at::Tensor& x, const Weight& w, at::Tensor& y,
                           const at::Tensor& bias) const {
  const aten_impl::BelowAutograd below;
  if (w.in_integers()) {
    aten_impl::multiply_integers(
        x, *w.quantized, aten_impl::scratch_numbers(x.device()) / std::max<int64_t>(w.in(), 1), y);
    if (bias.defined()) y.add_(bias);
    return;
  }
  const at::Tensor left = rounds_factors(w) ? aten_impl::rounded(x) : x;
  aten_impl::each_factor(w, [&](int64_t first, int64_t count, const at::Tensor& rows) {
    aten_impl::multiply_into(y.narrow(1, first, count), left, rows.t(), false);
  });
  if (bias.defined()) y.add_(bias);
}

void AtenBackend::multiply_transposed(const at::Tensor& dy, const Weight& w, at::Tensor& dx,
                                      bool accumulate, const at::Tensor&) const {
  const aten_impl::BelowAutograd below;
  const at::Tensor left = rounds_factors(w) ? aten_impl::rounded(dy) : dy;
  if (w.out() == 0 && !accumulate) dx.zero_();
  aten_impl::each_factor(w, [&](int64_t first, int64_t count, const at::Tensor& rows) {
    aten_impl::multiply_into(dx, left.narrow(1, first, count), rows, accumulate || first > 0);
  });
}

void AtenBackend::weight_gradient(const Weight& w, const at::Tensor& dy, const at::Tensor& x,
                                  at::Tensor& dw, bool accumulate, const at::Tensor&) const {
  const aten_impl::BelowAutograd below;
  const bool rounds = rounds_factors(w);
  aten_impl::multiply_into(dw, (rounds ? aten_impl::rounded(dy) : dy).t(),
                           rounds ? aten_impl::rounded(x) : x, accumulate);
}

at::Tensor AtenBackend::read(const Weight& w) const {
  const aten_impl::BelowAutograd below;
  if (w.quantized) {
    at::Tensor x = at::empty({w.out(), w.in()}, w.quantized->codes.options().dtype(at::kFloat));
    Weight exact = w;
    exact.arithmetic = Arithmetic::kExact;
    aten_impl::each_factor(exact, [&](int64_t first, int64_t count, const at::Tensor& rows) {
      x.narrow(0, first, count).copy_(rows);
    });
    return in_input_order(*w.quantized, x);
  }
  return aten_impl::is_bfloat16(w) ? w.values.to(at::kBFloat16).to(at::kFloat) : w.values;
}

void AtenBackend::product(Operand a, Operand b, at::Tensor& c, bool accumulate,
                          const at::Tensor& bias, const at::Tensor&) const {
  const aten_impl::BelowAutograd below;
  aten_impl::multiply_into(c, aten_impl::matrix(a), aten_impl::matrix(b), accumulate);
  if (bias.defined()) c.add_(bias);
}

}  // namespace temper::ops
