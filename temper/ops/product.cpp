#include "temper/ops/product.h"

#include "temper/base/error.h"
#include "temper/ops/backend.h"

namespace temper::ops {

at::Tensor pack(Operand b) { return backend_of(b.tensor).pack(b); }

void product(Operand a, Operand b, at::Tensor& c, bool accumulate, const at::Tensor& bias,
             const at::Tensor& panels) {
  check(a.tensor.is_contiguous() && b.tensor.is_contiguous() && c.is_contiguous(),
        "product: tensors must be contiguous");
  check(b.rows() == a.columns() && c.size(0) == a.rows() && c.size(1) == b.columns(),
        "product: shapes [", a.rows(), ", ", a.columns(), "] and [", b.rows(), ", ", b.columns(),
        "] do not give ", c.sizes());
  backend_of(c).product(a, b, c, accumulate, bias, panels);
}

}  // namespace temper::ops
