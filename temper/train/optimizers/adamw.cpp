// AdamW (Loshchilov and Hutter, arXiv 1711.05101), to the formulas of torch.optim.AdamW.
#include <cmath>

#include "temper/ops/cpu/rows.h"
#include "temper/train/update_rule.h"

namespace temper::train {
namespace {

class AdamW : public UpdateRule {
 public:
  explicit AdamW(const OptimizerSection& config) : betas_(config.betas), eps_(config.eps) {}

  std::vector<StateTensor> state(const std::string&,
                                 const std::vector<int64_t>& shape) const override {
    return {{"first", shape}, {"second", shape}};
  }
  bool by_element(const std::string&, const std::vector<int64_t>&) const override { return true; }
  void update(const Update& u, const at::Tensor& grad, const at::Tensor& value,
              std::span<const at::Tensor> state) const override {
    const double t = static_cast<double>(u.step);
    kernels::adamw(grad.numel(),
                   {u.learning_rate, betas_[0], betas_[1], eps_, u.weight_decay,
                    1 - std::pow(betas_[0], t), 1 - std::pow(betas_[1], t), u.grad_scale},
                   grad.const_data_ptr<float>(), static_cast<float*>(value.data_ptr()),
                   state[0].mutable_data_ptr<float>(), state[1].mutable_data_ptr<float>());
  }

 private:
  std::array<double, 2> betas_;
  double eps_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_adamw(const OptimizerSection& config) {
  return std::make_unique<AdamW>(config);
}

}  // namespace temper::train
