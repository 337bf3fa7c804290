#include "temper/train/optimizers/update_rule.h"

#include "temper/ops/backend.h"

namespace temper::train {

bool updates_on_host(const at::Tensor& value) {
  return &ops::backend_of(value) == &ops::native_backend();
}

Registry<OptimizerKind>& optimizers() {
  static Registry<OptimizerKind> table("optimizer");
  return table;
}

}  // namespace temper::train
