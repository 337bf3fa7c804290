#include "temper/ops/pointwise.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "temper/base/exact_math.h"
#include "temper/ops/autograd.h"
#include "temper/ops/backend.h"

namespace temper::ops {
namespace {
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

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

// Each: the function, and the gradient of x from those of y, where x and y are known.
struct Exp {
  static at::Tensor value(const at::Tensor& x) { return map(x, &exact::exp); }
  static at::Tensor gradient(const at::Tensor& dy, const at::Tensor&, const at::Tensor& y) {
    return dy * y;
  }
};
struct Expm1 {
  static at::Tensor value(const at::Tensor& x) { return map(x, &exact::expm1); }
  static at::Tensor gradient(const at::Tensor& dy, const at::Tensor&, const at::Tensor& y) {
    return dy * (y + 1);
  }
};
struct Log {
  static at::Tensor value(const at::Tensor& x) { return map(x, &exact::log); }
  static at::Tensor gradient(const at::Tensor& dy, const at::Tensor& x, const at::Tensor&) {
    return dy / x;
  }
};
struct Sigmoid {
  static at::Tensor value(const at::Tensor& x) { return map(x, &exact::sigmoid); }
  static at::Tensor gradient(const at::Tensor& dy, const at::Tensor&, const at::Tensor& y) {
    return dy * (1 - y) * y;
  }
};
struct LogSigmoid {
  static at::Tensor value(const at::Tensor& x) { return map(x, &exact::log_sigmoid); }
  static at::Tensor gradient(const at::Tensor& dy, const at::Tensor& x, const at::Tensor&) {
    return dy * map(-x, &exact::sigmoid);
  }
};

template <class F>
struct Pointwise : Function<Pointwise<F>> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x) {
    at::Tensor y = F::value(x);
    ctx->save_for_backward({x, y});
    return y;
  }
  static variable_list backward(AutogradContext* ctx, variable_list douts) {
    const variable_list saved = ctx->get_saved_variables();
    return {F::gradient(douts[0], saved[0], saved[1])};
  }
};

template <class F>
at::Tensor apply(const at::Tensor& x) {
  return at::GradMode::is_enabled() ? Pointwise<F>::apply(x) : F::value(x);
}

// The backend aten computes with LibTorch's operators on every device: the same bits on each.
bool is_native(const at::Tensor& x) { return backend_of(x).batch_invariant(); }

}  // namespace

at::Tensor exp(const at::Tensor& x) { return is_native(x) ? apply<Exp>(x) : at::exp(x); }
at::Tensor expm1(const at::Tensor& x) { return is_native(x) ? apply<Expm1>(x) : at::expm1(x); }
at::Tensor log(const at::Tensor& x) { return is_native(x) ? apply<Log>(x) : at::log(x); }
at::Tensor sigmoid(const at::Tensor& x) {
  return is_native(x) ? apply<Sigmoid>(x) : at::sigmoid(x);
}
at::Tensor log_sigmoid(const at::Tensor& x) {
  return is_native(x) ? apply<LogSigmoid>(x) : at::log_sigmoid(x);
}

at::Tensor sum_of_rows(const at::Tensor& x) {
  if (!is_native(x)) return x.sum(0);
  constexpr int64_t kColumns = 128;  // that one thread sums
  const at::Tensor from = x.contiguous();
  const int64_t rows = from.size(0), columns = from.size(1);
  at::Tensor y = at::empty({columns}, from.options());
  dispatch(from, [&](auto zero) {
    using T = decltype(zero);
    const T* in = values<T>(from);
    T* out = y.mutable_data_ptr<T>();
#pragma omp parallel for schedule(static) if (rows * columns > 32768)
    for (int64_t begin = 0; begin < columns; begin += kColumns) {
      const int64_t width = std::min(kColumns, columns - begin);
      double sums[kColumns] = {};
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < width; ++c)
          sums[c] += static_cast<double>(in[r * columns + begin + c]);
      for (int64_t c = 0; c < width; ++c) out[begin + c] = static_cast<T>(sums[c]);
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
