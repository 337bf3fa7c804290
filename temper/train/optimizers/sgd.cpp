// Stochastic gradient descent, to the formulas of torch.optim.SGD.
#include "temper/ops/backend.h"
#include "temper/train/optimizers/update_rule.h"

namespace temper::train {
namespace {

class Sgd : public UpdateRule {
 public:
  explicit Sgd(const OptimizerSection& config) : momentum_(config.momentum) {}

  std::vector<StateTensor> state(nn::Role, const std::vector<int64_t>& shape) const override {
    if (momentum_ == 0) return {};
    return {{"first", shape}};
  }
  bool by_element(nn::Role, const std::vector<int64_t>&) const override { return true; }
  void update(const Update& u, const at::Tensor& grad, const at::Tensor& value,
              std::span<const at::Tensor> state) const override {
    ops::backend_of(value).sgd(
        {u.learning_rate, momentum_, u.weight_decay, u.grad_scale, u.step == 1}, grad, value,
        state.empty() ? at::Tensor() : state[0]);
  }

 private:
  double momentum_;
};

const Registered<OptimizerKind> kSgd(&optimizers,
                                     {"sgd",
                                      {.make = &make_rule<Sgd>, .momentum = 0},
                                      "gradient descent, with momentum where it is set"});

}  // namespace
}  // namespace temper::train
