#include "temper/ops/row_distance.h"

#include <ATen/ATen.h>

#include <cmath>

#include "temper/ops/autograd.h"
#include "temper/ops/cpu/divergence.h"

namespace temper::ops {
namespace {
using kernels::divergence_kernels;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// The cosine of a row of zeros with anything is 0, and has no gradient.
template <class T>
T inverse_norm(const T* dots) {
  const T norm = std::sqrt(dots[1]) * std::sqrt(dots[2]);
  return norm > 0 ? 1 / norm : T(0);
}

// A number for each row of a and b [N, width], of_row(width, row of a, row of b).
template <class OfRow>
at::Tensor by_row(const at::Tensor& a, const at::Tensor& b, OfRow of_row) {
  at::Tensor out = at::empty({a.size(0)}, a.options());
  dispatch(a, [&](auto zero) {
    using T = decltype(zero);
    const int64_t rows = a.size(0), width = a.size(1);
    const T *pa = values<T>(a), *pb = values<T>(b);
    T* to = out.mutable_data_ptr<T>();
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; ++r) to[r] = of_row(width, pa + r * width, pb + r * width);
  });
  return out;
}

struct CosineFunction : Function<CosineFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& a, const at::Tensor& b) {
    ctx->save_for_backward({a, b});
    return by_row(a, b, []<class T>(int64_t width, const T* x, const T* y) {
      T dots[3];
      divergence_kernels<T>().products(width, x, y, dots);
      return 1 - dots[0] * inverse_norm(dots);
    });
  }

  // The gradient of 1 - cos is -(b / (|a| |b|) - cos a / |a|²).
  static variable_list backward(AutogradContext* ctx, variable_list douts) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &a = saved[0], &b = saved[1], g = douts[0].contiguous();
    at::Tensor da = at::empty_like(a);
    dispatch(a, [&](auto zero) {
      using T = decltype(zero);
      const int64_t rows = a.size(0), width = a.size(1);
      const T *pa = values<T>(a), *pb = values<T>(b), *pg = values<T>(g);
      T* out = da.mutable_data_ptr<T>();
#pragma omp parallel for schedule(static)
      for (int64_t r = 0; r < rows; ++r) {
        const T *x = pa + r * width, *y = pb + r * width;
        T dots[3];
        divergence_kernels<T>().products(width, x, y, dots);
        const T inverse = inverse_norm(dots),
                along = dots[1] > 0 ? dots[0] * inverse / dots[1] : T(0);
        for (int64_t i = 0; i < width; ++i)
          out[r * width + i] = -pg[r] * (y[i] * inverse - along * x[i]);
      }
    });
    return {da, at::Tensor()};
  }
};

struct SquaredFunction : Function<SquaredFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& a, const at::Tensor& b) {
    ctx->save_for_backward({a, b});
    return by_row(a, b, []<class T>(int64_t width, const T* x, const T* y) {
      return divergence_kernels<T>().squared_distance(width, x, y);
    });
  }
  static variable_list backward(AutogradContext* ctx, variable_list douts) {
    const variable_list saved = ctx->get_saved_variables();
    return {(saved[0] - saved[1]).mul_(2 * douts[0].unsqueeze(1)), at::Tensor()};
  }
};

void check_shapes(const at::Tensor& a, const at::Tensor& b) {
  check(a.dim() == 2 && a.sizes() == b.sizes(), "distance of rows: ", a.sizes(), " and ",
        b.sizes());
}

}  // namespace

at::Tensor cosine_distance(const at::Tensor& a, const at::Tensor& b) {
  check_shapes(a, b);
  return CosineFunction::apply(a.contiguous(), b.detach().contiguous());
}

at::Tensor squared_distance(const at::Tensor& a, const at::Tensor& b) {
  check_shapes(a, b);
  return SquaredFunction::apply(a.contiguous(), b.detach().contiguous());
}

at::Tensor pool_features(const at::Tensor& x, int64_t width) {
  const int64_t in = x.size(1);
  check(width > 0 && width <= in, "pooling ", in, " features to ", width);
  if (width == in) return x;
  const int64_t stride = in / width, window = in - (width - 1) * stride;
  const at::Tensor from = x.contiguous();
  at::Tensor out = at::empty({x.size(0), width}, x.options());
  dispatch(x, [&](auto zero) {
    using T = decltype(zero);
    const T* data = values<T>(from);
    T* to = out.mutable_data_ptr<T>();
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < x.size(0); ++r)
      for (int64_t i = 0; i < width; ++i) {
        T sum = 0;
        for (int64_t j = 0; j < window; ++j) sum += data[r * in + i * stride + j];
        to[r * width + i] = sum / static_cast<T>(window);
      }
  });
  return out;
}

}  // namespace temper::ops
