#include "temper/ops/layers/dropout.h"

#include <ATen/ATen.h>

#include "temper/ops/autograd.h"
#include "temper/ops/backend.h"

namespace temper::ops {
namespace {
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// The random numbers are drawn again for the gradient: no mask is kept.
struct DropoutFunction : Function<DropoutFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const DropoutKey& key) {
    keep(ctx, key);
    return backend_of(x).dropout(key, x);
  }
  static variable_list backward(AutogradContext* ctx, variable_list douts) {
    const at::Tensor dy = douts[0].contiguous();
    return {backend_of(dy).dropout(kept<DropoutKey>(ctx), dy), at::Tensor()};
  }
};
}  // namespace

at::Tensor dropout(const at::Tensor& x, double p, uint64_t seed, uint64_t step, uint64_t module,
                   const std::vector<uint64_t>& row_key) {
  check(static_cast<int64_t>(row_key.size()) == x.size(0), "dropout: ", row_key.size(),
        " keys for ", x.size(0), " rows");
  return DropoutFunction::apply(x.contiguous(),
                                DropoutKey{p, seed, step, module, indices(row_key, x)});
}

}  // namespace temper::ops
