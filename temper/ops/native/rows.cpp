// Operations on rows, on temper/ops/native/kernels/rows.h and divergence.h.
#include "temper/ops/native/kernels/rows.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "temper/ops/native/kernels/divergence.h"
#include "temper/ops/native/native.h"
#include "temper/ops/tensor_data.h"

namespace temper::ops {
namespace {
using kernels::divergence_kernels;
using kernels::row_kernels;

constexpr int64_t kColumnsOfThread = 64;  // columns that one thread sums
constexpr int64_t kParallel = 32768;      // elements from which a second thread pays

// Eight partial sums, added in order.
template <class T>
T norm_of(const T* x, int64_t width) {
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

}  // namespace

at::Tensor NativeBackend::rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps,
                                   bool add_unit_offset) const {
  at::Tensor y = new_tensor(x.sizes(), x);
  const int64_t width = weight.size(0);
  dispatch(x, [&](auto zero) {
    using T = decltype(zero);
    row_kernels<T>().rms_norm(x.numel() / width, width, values<T>(x), values<T>(weight), eps,
                              add_unit_offset, y.mutable_data_ptr<T>());
  });
  return y;
}

at::Tensor NativeBackend::rms_norm_backward(const at::Tensor& x, const at::Tensor& weight,
                                            double eps, bool add_unit_offset, const at::Tensor& dy,
                                            at::Tensor& dweight) const {
  at::Tensor dx = at::zeros_like(x);
  const int64_t width = weight.size(0);
  dispatch(x, [&](auto zero) {
    using T = decltype(zero);
    row_kernels<T>().rms_norm_backward(x.numel() / width, width, values<T>(x), values<T>(weight),
                                       eps, add_unit_offset, values<T>(dy),
                                       dx.mutable_data_ptr<T>(),
                                       dweight.defined() ? dweight.mutable_data_ptr<T>() : nullptr);
  });
  return dx;
}

at::Tensor NativeBackend::center(const at::Tensor& x) const {
  at::Tensor y = new_tensor(x.sizes(), x);
  const int64_t width = x.size(-1);
  dispatch(x, [&](auto zero) {
    using T = decltype(zero);
    row_kernels<T>().center(x.numel() / width, width, values<T>(x), y.mutable_data_ptr<T>());
  });
  return y;
}

at::Tensor NativeBackend::gated(Activation activation, const at::Tensor& gate,
                                const at::Tensor& up) const {
  at::Tensor y = new_tensor(gate.sizes(), gate);
  dispatch(gate, [&](auto zero) {
    using T = decltype(zero);
    row_kernels<T>().gated(y.numel(), activation, values<T>(gate), values<T>(up),
                           y.mutable_data_ptr<T>());
  });
  return y;
}

std::pair<at::Tensor, at::Tensor> NativeBackend::gated_backward(Activation activation,
                                                                const at::Tensor& gate,
                                                                const at::Tensor& up,
                                                                const at::Tensor& dy) const {
  at::Tensor dgate = new_tensor(gate.sizes(), gate), dup = new_tensor(gate.sizes(), gate);
  dispatch(gate, [&](auto zero) {
    using T = decltype(zero);
    row_kernels<T>().gated_backward(dgate.numel(), activation, values<T>(gate), values<T>(up),
                                    values<T>(dy), dgate.mutable_data_ptr<T>(),
                                    dup.mutable_data_ptr<T>());
  });
  return {dgate, dup};
}

at::Tensor NativeBackend::clamp_scaled(const at::Tensor& x, double low, double high, double offset,
                                       double scale) const {
  at::Tensor y = new_tensor(x.sizes(), x);
  dispatch(x, [&](auto zero) {
    using T = decltype(zero);
    const T least = static_cast<T>(low), most = static_cast<T>(high), more = static_cast<T>(offset),
            factor = static_cast<T>(scale);
    const T* from = values<T>(x);
    T* to = y.mutable_data_ptr<T>();
    const int64_t count = y.numel();
#pragma omp parallel for schedule(static) if (count > 32768)
    for (int64_t i = 0; i < count; ++i) {
      const T kept = from[i] < least ? least : from[i] > most ? most : from[i];
      to[i] = factor * (kept + more);
    }
  });
  return y;
}

at::Tensor NativeBackend::add_scaled(const at::Tensor& a, const at::Tensor& b, double scale) const {
  at::Tensor y = new_tensor(a.sizes(), a);
  dispatch(a, [&](auto zero) {
    using T = decltype(zero);
    row_kernels<T>().add_scaled(a.numel(), values<T>(a), static_cast<T>(scale), values<T>(b),
                                y.mutable_data_ptr<T>());
  });
  return y;
}

at::Tensor NativeBackend::dropout(const DropoutKey& key, const at::Tensor& x) const {
  at::Tensor y = at::empty_like(x);
  const auto* row = reinterpret_cast<const uint64_t*>(values<int64_t>(key.row));
  dispatch(x, [&](auto zero) {
    using T = decltype(zero);
    row_kernels<T>().dropout_rows(x.size(0), x.size(1), key.seed, key.step, key.module, row, key.p,
                                  values<T>(x), y.mutable_data_ptr<T>());
  });
  return y;
}

at::Tensor NativeBackend::row_norms(const at::Tensor& x) const {
  const int64_t rows = x.size(0), width = x.size(1);
  at::Tensor out = at::empty({rows}, x.options());
  dispatch(x, [&](auto zero) {
    using T = decltype(zero);
    const T* from = values<T>(x);
    T* to = out.mutable_data_ptr<T>();
#pragma omp parallel for schedule(static) if (rows * width > kParallel)
    for (int64_t r = 0; r < rows; ++r) to[r] = norm_of(from + r * width, width);
  });
  return out;
}

at::Tensor NativeBackend::scale_columns(const at::Tensor& x, const at::Tensor& factor,
                                        const at::Tensor& bias) const {
  at::Tensor y = at::empty_like(x);
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
  return y;
}

at::Tensor NativeBackend::column_sums(const at::Tensor& a, const at::Tensor& b) const {
  const int64_t rows = a.size(0), width = a.size(1),
                blocks = (width + kColumnsOfThread - 1) / kColumnsOfThread;
  at::Tensor out = at::zeros({width}, a.options());
  dispatch(a, [&](auto zero) {
    using T = decltype(zero);
    const T *x = values<T>(a), *y = values<T>(b);
    T* sum = out.mutable_data_ptr<T>();
    // Rows ascending whatever the number of threads.
#pragma omp parallel for schedule(static) if (rows * width > kParallel)
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t first = block * kColumnsOfThread,
                    end = std::min(first + kColumnsOfThread, width);
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t j = first; j < end; ++j) sum[j] += x[r * width + j] * y[r * width + j];
    }
  });
  return out;
}

at::Tensor NativeBackend::cosine_distance(const at::Tensor& a, const at::Tensor& b) const {
  return by_row(a, b, []<class T>(int64_t width, const T* x, const T* y) {
    T dots[3];
    divergence_kernels<T>().products(width, x, y, dots);
    return 1 - dots[0] * inverse_norm(dots);
  });
}

// The gradient of 1 - cos is -(b / (|a| |b|) - cos a / |a|²).
at::Tensor NativeBackend::cosine_distance_backward(const at::Tensor& a, const at::Tensor& b,
                                                   const at::Tensor& g) const {
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
  return da;
}

at::Tensor NativeBackend::squared_distance(const at::Tensor& a, const at::Tensor& b) const {
  return by_row(a, b, []<class T>(int64_t width, const T* x, const T* y) {
    return divergence_kernels<T>().squared_distance(width, x, y);
  });
}

at::Tensor NativeBackend::pool_features(const at::Tensor& x, int64_t width) const {
  const int64_t in = x.size(1), stride = in / width, window = in - (width - 1) * stride;
  at::Tensor out = at::empty({x.size(0), width}, x.options());
  dispatch(x, [&](auto zero) {
    using T = decltype(zero);
    const T* data = values<T>(x);
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
