// The native backend: the kernels of temper/ops/native/kernels. Its members stand in the files of
// this folder, by the parts of Backend.
#pragma once

#include "temper/ops/backend.h"

namespace temper::ops {

class NativeBackend : public Backend {
 public:
  const char* name() const override { return "native"; }
  bool batch_invariant() const override { return true; }

  void multiply_each(const at::Tensor& x, const std::vector<LinearOperand>& layers,
                     std::vector<at::Tensor>& y) const override;
  void grouped_multiply(const at::Tensor& x, const std::vector<int64_t>& offsets,
                        const std::vector<LinearOperand>& layer, at::Tensor& y) const override;
  void grouped_multiply_transposed(const at::Tensor& dy, const std::vector<int64_t>& offsets,
                                   const std::vector<LinearOperand>& layer, at::Tensor& dx,
                                   bool accumulate) const override;
  void grouped_weight_gradients(const std::vector<LinearOperand>& layer, const at::Tensor& dy,
                                const at::Tensor& x, const std::vector<int64_t>& offsets,
                                std::vector<at::Tensor>& dw) const override;

#define PRIMITIVE override
#include "temper/ops/primitives-inl.h"
};

}  // namespace temper::ops
