#include "temper/ops/dora.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>

#include "temper/ops/autograd.h"
#include "temper/ops/cpu/rows.h"
#include "temper/ops/product.h"

namespace temper::ops {
namespace {
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

constexpr int64_t kRowsAtOnce = 128;      // rows of W + scale B A in memory at once
constexpr int64_t kColumnsOfThread = 64;  // columns that one thread sums
constexpr int64_t kParallel = 32768;      // elements from which a second thread pays

// Eight partial sums, added in order.
template <class T>
T row_norm(const T* x, int64_t width) {
  double part[8] = {};
  int64_t k = 0;
  for (; k + 8 <= width; k += 8)
    for (int64_t i = 0; i < 8; ++i) {
      const double v = static_cast<double>(x[k + i]);
      part[i] += v * v;
    }
  double sum = 0;
  for (const double p : part) sum += p;
  for (; k < width; ++k) sum += static_cast<double>(x[k]) * static_cast<double>(x[k]);
  return static_cast<T>(std::sqrt(sum));
}

// Σ_n a[n, j] (b[n, j]), n ascending whatever the number of threads; b may be undefined.
at::Tensor column_sums(const at::Tensor& a, const at::Tensor& b) {
  const int64_t rows = a.size(0), width = a.size(1),
                blocks = (width + kColumnsOfThread - 1) / kColumnsOfThread;
  at::Tensor out = at::zeros({width}, a.options());
  dispatch(a, [&](auto zero) {
    using T = decltype(zero);
    const T *x = values<T>(a), *y = values<T>(b);
    T* sum = out.mutable_data_ptr<T>();
#pragma omp parallel for schedule(static) if (rows * width > kParallel)
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t first = block * kColumnsOfThread,
                    end = std::min(first + kColumnsOfThread, width);
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t j = first; j < end; ++j)
          sum[j] += y ? x[r * width + j] * y[r * width + j] : x[r * width + j];
    }
  });
  return out;
}

// Tensors: x, magnitude, norm and, where there is one, the bias.
struct ScaleFeaturesFunction : Function<ScaleFeaturesFunction> {
  static at::Tensor forward(AutogradContext* ctx, at::TensorList tensors) {
    const at::Tensor &x = tensors[0], &magnitude = tensors[1], &norm = tensors[2];
    const at::Tensor bias = tensors.size() > 3 ? tensors[3] : at::Tensor();
    at::Tensor y = at::empty_like(x);
    const at::Tensor factor = feature_scale(magnitude, norm);
    const int64_t rows = x.size(0), width = x.size(1);
    dispatch(x, [&](auto zero) {
      using T = decltype(zero);
      const T *from = values<T>(x), *f = values<T>(factor), *b = values<T>(bias);
      T* to = y.mutable_data_ptr<T>();
#pragma omp parallel for schedule(static) if (rows * width > kParallel)
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t j = 0; j < width; ++j)
          to[r * width + j] = b ? from[r * width + j] * f[j] + b[j] : from[r * width + j] * f[j];
    });
    ctx->save_for_backward({x, magnitude, norm});
    ctx->saved_data["inputs"] = static_cast<int64_t>(tensors.size());
    return y;
  }
  static variable_list backward(AutogradContext* ctx, variable_list douts) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &magnitude = saved[1], &norm = saved[2];
    const at::Tensor dy = douts[0].contiguous();
    variable_list grads(static_cast<size_t>(ctx->saved_data["inputs"].toInt()));
    if (ctx->needs_input_grad(0)) grads[0] = dy * feature_scale(magnitude, norm);
    if (ctx->needs_input_grad(1)) grads[1] = feature_scale(column_sums(dy, x), norm);
    if (grads.size() > 3 && ctx->needs_input_grad(3)) grads[3] = column_sums(dy, {});
    return grads;
  }
};

}  // namespace

at::Tensor adapted_row_norms(const RowsOf& weight, const at::Tensor& a, const at::Tensor& b,
                             double scale) {
  const at::NoGradGuard no_grad;
  const int64_t out = b.size(0), in = a.size(1);
  const at::Tensor norms = at::empty({out}, a.options()), panels = pack(Operand{a});
  for (int64_t first = 0; first < out; first += kRowsAtOnce) {
    const int64_t count = std::min(kRowsAtOnce, out - first);
    const at::Tensor w = weight(first, count).contiguous(), low = b.narrow(0, first, count);
    check(w.size(1) == in && w.scalar_type() == a.scalar_type(), "row norms: weight ", w.sizes(),
          " and an adapter of inputs of ", in);
    at::Tensor sum = at::empty_like(w);
    product({low}, {a}, sum, false, {}, panels);
    dispatch(a, [&](auto zero) {
      using T = decltype(zero);
      T *x = sum.mutable_data_ptr<T>(), *to = norms.mutable_data_ptr<T>() + first;
      kernels::row_kernels<T>().add_scaled(count * in, values<T>(w), static_cast<T>(scale), x, x);
#pragma omp parallel for schedule(static) if (count * in > kParallel)
      for (int64_t r = 0; r < count; ++r) to[r] = row_norm(x + r * in, in);
    });
  }
  return norms;
}

at::Tensor feature_scale(const at::Tensor& magnitude, const at::Tensor& norm) {
  at::Tensor out = at::empty_like(norm);
  dispatch(norm, [&](auto zero) {
    using T = decltype(zero);
    const T *m = values<T>(magnitude), *n = values<T>(norm);
    T* to = out.mutable_data_ptr<T>();
    for (int64_t j = 0; j < norm.numel(); ++j) to[j] = n[j] == 0 ? T(0) : m[j] / n[j];
  });
  return out;
}

at::Tensor scale_features(const at::Tensor& x, const at::Tensor& magnitude, const at::Tensor& norm,
                          const at::Tensor& bias) {
  check(x.dim() == 2 && x.is_contiguous() && magnitude.numel() == x.size(1) &&
            norm.numel() == x.size(1),
        "scale_features: ", x.sizes(), " by ", magnitude.sizes(), " and ", norm.sizes());
  variable_list tensors{x, magnitude, norm};
  if (bias.defined()) tensors.push_back(bias);
  return ScaleFeaturesFunction::apply(at::TensorList(tensors));
}

}  // namespace temper::ops
