#include "temper/ops/dropout.h"

#include <ATen/ATen.h>

#include "temper/ops/autograd.h"
#include "temper/ops/cpu/rows.h"

namespace temper::ops {
namespace {
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

struct DropoutKey {
  double p;
  uint64_t seed, step, module;
  std::vector<uint64_t> row_key;
};

at::Tensor drop(const DropoutKey& key, const at::Tensor& x) {
  at::Tensor y = at::empty_like(x);
  dispatch(x, [&](auto zero) {
    using T = decltype(zero);
    kernels::row_kernels<T>().dropout_rows(x.size(0), x.size(1), key.seed, key.step, key.module,
                                           key.row_key.data(), key.p, values<T>(x),
                                           y.mutable_data_ptr<T>());
  });
  return y;
}

// The random numbers are drawn again for the gradient: no mask is kept.
struct DropoutFunction : Function<DropoutFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const DropoutKey& key) {
    keep(ctx, key);
    return drop(key, x);
  }
  static variable_list backward(AutogradContext* ctx, variable_list douts) {
    return {drop(kept<DropoutKey>(ctx), douts[0].contiguous()), at::Tensor()};
  }
};
}  // namespace

at::Tensor dropout(const at::Tensor& x, double p, uint64_t seed, uint64_t step, uint64_t module,
                   const std::vector<uint64_t>& row_key) {
  check(static_cast<int64_t>(row_key.size()) == x.size(0), "dropout: ", row_key.size(),
        " keys for ", x.size(0), " rows");
  return DropoutFunction::apply(x.contiguous(), DropoutKey{p, seed, step, module, row_key});
}

}  // namespace temper::ops
