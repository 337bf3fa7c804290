// Stochastic gradient descent, to the formulas of torch.optim.SGD.
#include "temper/ops/cpu/rows.h"
#include "temper/train/update_rule.h"

namespace temper::train {
namespace {

class Sgd : public UpdateRule {
 public:
  explicit Sgd(const OptimizerSection& config) : momentum_(config.momentum) {}

  std::vector<StateTensor> state(const std::string&,
                                 const std::vector<int64_t>& shape) const override {
    if (momentum_ == 0) return {};
    return {{"first", shape}};
  }
  bool by_element(const std::string&, const std::vector<int64_t>&) const override { return true; }
  void update(const Update& u, const at::Tensor& grad, const at::Tensor& value,
              std::span<const at::Tensor> state) const override {
    kernels::sgd(grad.numel(), u.learning_rate, momentum_, u.weight_decay, u.grad_scale,
                 u.step == 1, grad.const_data_ptr<float>(), static_cast<float*>(value.data_ptr()),
                 state.empty() ? nullptr : state[0].mutable_data_ptr<float>());
  }

 private:
  double momentum_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_sgd(const OptimizerSection& config) {
  return std::make_unique<Sgd>(config);
}

}  // namespace temper::train
