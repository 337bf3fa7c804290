// AdamW (Loshchilov and Hutter, arXiv 1711.05101), to the formulas of torch.optim.AdamW.

#include "temper/base/exact_math.h"
#include "temper/ops/backend.h"
#include "temper/train/optimizers/update_rule.h"

namespace temper::train {
namespace {

class AdamW : public UpdateRule {
 public:
  explicit AdamW(const OptimizerSection& config) : betas_(config.betas), eps_(config.eps) {}

  std::vector<StateTensor> state(nn::Role, const std::vector<int64_t>& shape) const override {
    return {{"first", shape}, {"second", shape}};
  }
  bool by_element(nn::Role, const std::vector<int64_t>&) const override { return true; }
  void update(const Update& u, const at::Tensor& grad, const at::Tensor& value,
              std::span<const at::Tensor> state) const override {
    const double t = static_cast<double>(u.step);
    ops::backend_of(value).adamw(
        {u.learning_rate, betas_[0], betas_[1], eps_, u.weight_decay, 1 - exact::pow(betas_[0], t),
         1 - exact::pow(betas_[1], t), u.grad_scale},
        grad, value, state[0], state[1]);
  }

 private:
  std::array<double, 2> betas_;
  double eps_;
};

const Registered<OptimizerKind> kAdamW(
    &optimizers, {"adamw",
                  {.make = &make_rule<AdamW>, .betas = {{0.9, 0.999}}, .eps = 1e-8},
                  "Adam with decoupled weight decay",
                  "Loshchilov and Hutter, arXiv 1711.05101, algorithm 2"});

}  // namespace
}  // namespace temper::train
