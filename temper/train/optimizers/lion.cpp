// Lion (Chen et al., arXiv 2302.06675), to the formulas of its authors' lion_pytorch.py.
#include <ATen/ATen.h>

#include "temper/train/optimizers/update_rule.h"

namespace temper::train {
namespace {

class Lion : public UpdateRule {
 public:
  explicit Lion(const OptimizerSection& config) : betas_(config.betas) {}

  std::vector<StateTensor> state(nn::Role, const std::vector<int64_t>& shape) const override {
    return {{"first", shape}};
  }
  bool by_element(nn::Role, const std::vector<int64_t>&) const override { return true; }
  void update(const Update& u, const at::Tensor& grad, const at::Tensor& value,
              std::span<const at::Tensor> state) const override {
    if (!updates_on_host(value)) return update_on_device(u, grad, value, state[0]);
    const int64_t count = grad.numel();
    const float* g = grad.const_data_ptr<float>();
    float* p = static_cast<float*>(value.data_ptr());
    float* first = state[0].mutable_data_ptr<float>();
    const float scale = static_cast<float>(u.grad_scale);
    const float rate = static_cast<float>(u.learning_rate),
                keep = static_cast<float>(1 - u.learning_rate * u.weight_decay);
    const float b1 = static_cast<float>(betas_[0]), c1 = static_cast<float>(1 - betas_[0]);
    const float b2 = static_cast<float>(betas_[1]), c2 = static_cast<float>(1 - betas_[1]);
#pragma omp parallel for schedule(static) if (count > 32768)
    for (int64_t i = 0; i < count; ++i) {
      const float now = g[i] * scale, direction = first[i] * b1 + now * c1;
      const float sign = static_cast<float>(direction > 0) - static_cast<float>(direction < 0);
      p[i] = p[i] * keep - rate * sign;
      first[i] = first[i] * b2 + now * c2;
    }
  }

 private:
  void update_on_device(const Update& u, const at::Tensor& grad, const at::Tensor& value,
                        const at::Tensor& first) const {
    const at::Tensor now = grad * u.grad_scale;
    const at::Tensor direction = (first * betas_[0]).add_(now, 1 - betas_[0]).sign_();
    value.mul_(1 - u.learning_rate * u.weight_decay).sub_(direction, u.learning_rate);
    first.mul_(betas_[1]).add_(now, 1 - betas_[1]);
  }

  std::array<double, 2> betas_;
};

const Registered<OptimizerKind> kLion(
    &optimizers,
    {"lion",
     {.make = &make_rule<Lion>, .betas = {{0.9, 0.99}}},
     "the sign of a moving average; half of AdamW's state, a third to a tenth of its rate",
     "Chen et al., arXiv 2302.06675, algorithm 2"});

}  // namespace
}  // namespace temper::train
