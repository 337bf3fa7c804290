#include "temper/ops/pointwise.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "temper/base/exact_math.h"
#include "temper/ops/autograd.h"
#include "temper/ops/backend.h"
#include "temper/ops/tensor_data.h"

namespace temper::ops {
namespace {

constexpr int64_t kFew = 2048;  // elements that are no work for several threads

at::Tensor map(const at::Tensor& x, double (*function)(double)) {
  const at::Tensor from = x.contiguous();
  at::Tensor y = at::empty_like(from);
  dispatch(from, [&](auto zero) {
    using T = decltype(zero);
    const T* in = values<T>(from);
    T* out = y.mutable_data_ptr<T>();
    const int64_t count = from.numel();
#pragma omp parallel for schedule(static) if (count > kFew)
    for (int64_t i = 0; i < count; ++i)
      out[i] = static_cast<T>(function(static_cast<double>(in[i])));
  });
  return y;
}

// y = function(x), with gradient(dy, x, y) as that of x.
template <class Gradient>
at::Tensor pointwise(const at::Tensor& x, double (*function)(double), Gradient gradient) {
  Recording call({x});
  const at::Tensor y = map(x, function);
  call.reads({x, y});
  return call.output(y, [=](const Gradients& d) -> Tensors { return {gradient(d[0], x, y)}; });
}

// The backend aten computes with LibTorch's operators on every device: the same bits on each.
bool is_native(const at::Tensor& x) { return backend_of(x).batch_invariant(); }

}  // namespace

at::Tensor exp(const at::Tensor& x) {
  if (!is_native(x)) return at::exp(x);
  return pointwise(x, &exact::exp, [](auto& dy, auto&, auto& y) { return dy * y; });
}
at::Tensor expm1(const at::Tensor& x) {
  if (!is_native(x)) return at::expm1(x);
  return pointwise(x, &exact::expm1, [](auto& dy, auto&, auto& y) { return dy * (y + 1); });
}
at::Tensor log(const at::Tensor& x) {
  if (!is_native(x)) return at::log(x);
  return pointwise(x, &exact::log, [](auto& dy, auto& in, auto&) { return dy / in; });
}
at::Tensor sigmoid(const at::Tensor& x) {
  if (!is_native(x)) return at::sigmoid(x);
  return pointwise(x, &exact::sigmoid, [](auto& dy, auto&, auto& y) { return dy * (1 - y) * y; });
}
at::Tensor log_sigmoid(const at::Tensor& x) {
  if (!is_native(x)) return at::log_sigmoid(x);
  return pointwise(x, &exact::log_sigmoid,
                   [](auto& dy, auto& in, auto&) { return dy * map(-in, &exact::sigmoid); });
}

at::Tensor sum_of_rows(const at::Tensor& x) { return add_rows({}, x).to(x.scalar_type()); }

at::Tensor add_rows(const at::Tensor& before, const at::Tensor& x) {
  if (!is_native(x)) return before.defined() ? before + x.sum(0) : x.sum(0);
  constexpr int64_t kColumns = 128;  // that one thread sums
  const at::Tensor from = x.contiguous();
  const int64_t rows = from.size(0), columns = from.size(1);
  at::Tensor y =
      before.defined() ? before.clone() : at::zeros({columns}, from.options().dtype(at::kDouble));
  double* const sums = y.mutable_data_ptr<double>();
  dispatch(from, [&](auto zero) {
    using T = decltype(zero);
    const T* in = values<T>(from);
#pragma omp parallel for schedule(static) if (rows * columns > 32768)
    for (int64_t begin = 0; begin < columns; begin += kColumns) {
      const int64_t end = std::min(begin + kColumns, columns);
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = begin; c < end; ++c) sums[c] += static_cast<double>(in[r * columns + c]);
    }
  });
  return y;
}

at::Tensor sum_in_rows(const at::Tensor& x) {
  if (!is_native(x)) return x.sum(-1);
  const at::Tensor from = x.contiguous();
  const int64_t columns = from.size(-1);
  at::Tensor y =
      at::empty(from.sizes().slice(0, static_cast<size_t>(from.dim() - 1)), from.options());
  dispatch(from, [&](auto zero) {
    using T = decltype(zero);
    const T* in = values<T>(from);
    T* out = y.mutable_data_ptr<T>();
    const int64_t rows = y.numel();
#pragma omp parallel for schedule(static) if (rows * columns > 32768)
    for (int64_t r = 0; r < rows; ++r) {
      double sum = 0;
      for (int64_t c = 0; c < columns; ++c) sum += static_cast<double>(in[r * columns + c]);
      out[r] = static_cast<T>(sum);
    }
  });
  return y;
}

}  // namespace temper::ops
