// Lion (Chen et al., arXiv 2302.06675), to the formulas of its authors' lion_pytorch.py.
#include "temper/train/update_rule.h"

namespace temper::train {
namespace {

class Lion : public UpdateRule {
 public:
  explicit Lion(const OptimizerSection& config) : betas_(config.betas) {}

  std::vector<StateTensor> state(const std::string&,
                                 const std::vector<int64_t>& shape) const override {
    return {{"first", shape}};
  }
  bool by_element(const std::string&, const std::vector<int64_t>&) const override { return true; }
  void update(const Update& u, const at::Tensor& grad, const at::Tensor& value,
              std::span<const at::Tensor> state) const override {
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
  std::array<double, 2> betas_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_lion(const OptimizerSection& config) {
  return std::make_unique<Lion>(config);
}

}  // namespace temper::train
