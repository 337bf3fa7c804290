#include "temper/ops/layers/dropout.h"

#include <ATen/ATen.h>

#include "temper/base/error.h"
#include "temper/ops/autograd.h"
#include "temper/ops/backend.h"

namespace temper::ops {
at::Tensor dropout(const at::Tensor& x, double p, uint64_t seed, uint64_t step, uint64_t module,
                   const std::vector<uint64_t>& row_key) {
  check(static_cast<int64_t>(row_key.size()) == x.size(0), "dropout: ", row_key.size(),
        " keys for ", x.size(0), " rows");
  const at::Tensor from = x.contiguous();
  const DropoutKey key{p, seed, step, module, indices(row_key, x)};
  Recording call({from});
  // The random numbers are drawn again for the gradient: no mask is kept.
  return call.output(backend_of(from).dropout(key, from), [key](const Gradients& d) -> Tensors {
    return {backend_of(d[0]).dropout(key, d[0])};
  });
}

}  // namespace temper::ops
