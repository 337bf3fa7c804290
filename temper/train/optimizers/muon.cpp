// Muon (Jordan et al., kellerjordan.github.io/posts/muon), to the formulas of torch.optim.Muon with
// Nesterov momentum, but in float32, where torch orthogonalises in bfloat16. Embeddings, the head
// and whatever is no matrix take AdamW's step.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "temper/ops/backend.h"
#include "temper/ops/product.h"
#include "temper/train/optimizers/update_rule.h"

namespace temper::train {
namespace {

class MuonKeys : public OptimizerKeys {
 public:
  enum class AdjustLr { kOriginal, kMatchRmsAdamw };
  void fields(Fields& f) override;
  std::unique_ptr<OptimizerKeys> clone() const override {
    return std::make_unique<MuonKeys>(*this);
  }

  AdjustLr adjust_lr = AdjustLr::kMatchRmsAdamw;
  int64_t steps = 5;
};

}  // namespace
}  // namespace temper::train

namespace temper {
template <>
inline constexpr std::array enum_names<train::MuonKeys::AdjustLr> = {"original", "match_rms_adamw"};
}  // namespace temper

namespace temper::train {
namespace {

void MuonKeys::fields(Fields& f) {
  f.add("adjust_lr", adjust_lr,
        "scaling of a matrix's learning rate: match_rms_adamw (use AdamW's rates), or original "
        "(Keller Jordan's)");
  f.add("steps", steps, "number of Newton-Schulz iterations per update", between(1, 99));
}

// The coefficients of the quintic iteration, and the least norm that it divides by.
constexpr float kA = 3.4445f, kB = -4.7750f, kC = 2.0315f;
constexpr double kEps = 1e-7;

// out = a * x + b * y: one rounding each, on every machine.
void combine(float a, const at::Tensor& x, float b, const at::Tensor& y, at::Tensor& out) {
  if (!updates_on_host(out)) {
    out.copy_((x * a).add_(y, b));
    return;
  }
  const int64_t count = x.numel();
  const float *from = x.const_data_ptr<float>(), *other = y.const_data_ptr<float>();
  float* to = out.mutable_data_ptr<float>();
#pragma omp parallel for schedule(static) if (count > 32768)
  for (int64_t i = 0; i < count; ++i) to[i] = a * from[i] + b * other[i];
}

// Newton-Schulz: about the nearest matrix whose rows, or columns, are orthonormal.
at::Tensor orthogonalize(const at::Tensor& matrix, int64_t steps) {
  const bool tall = matrix.size(0) > matrix.size(1);
  at::Tensor x = tall ? matrix.t().contiguous() : matrix.clone();
  if (updates_on_host(x))
    x.div_(static_cast<float>(std::max(kEps, std::sqrt(ops::backend_of(x).sum_of_squares(x)))));
  else
    x.div_(x.to(at::kDouble).square().sum().sqrt().clamp_min(kEps).to(at::kFloat));
  at::Tensor gram = at::empty({x.size(0), x.size(0)}, x.options()), square = at::empty_like(gram);
  at::Tensor next = at::empty_like(x);
  for (int64_t step = 0; step < steps; ++step) {
    ops::product({x}, {x, true}, gram);
    ops::product({gram}, {gram}, square);
    combine(kB, gram, kC, square, square);
    ops::product({square}, {x}, next);
    combine(kA, x, 1, next, x);
  }
  return tall ? x.t().contiguous() : x;
}

bool is_hidden_matrix(nn::Role role, const std::vector<int64_t>& shape) {
  return shape.size() == 2 && std::min(shape[0], shape[1]) >= 2 && role != nn::Role::kEmbedding &&
         role != nn::Role::kHead;
}

class Muon : public UpdateRule {
 public:
  explicit Muon(const OptimizerSection& config)
      : momentum_(config.momentum),
        settings_(config.own.of<MuonKeys>("muon")),
        adamw_(optimizers().find("adamw").make(config)) {}

  std::vector<StateTensor> state(nn::Role role, const std::vector<int64_t>& shape) const override {
    if (!is_hidden_matrix(role, shape)) return adamw_->state(role, shape);
    return {{"momentum", shape}};
  }

  bool by_element(nn::Role role, const std::vector<int64_t>& shape) const override {
    return !is_hidden_matrix(role, shape);
  }

  void update(const Update& u, const at::Tensor& grad, const at::Tensor& value,
              std::span<const at::Tensor> state) const override {
    if (state.size() != 1) return adamw_->update(u, grad, value, state);  // no hidden matrix
    const at::Tensor direction = orthogonalize(moved(u, grad, state[0]), settings_.steps);
    const float rate = static_cast<float>(u.learning_rate * scale(grad.size(0), grad.size(1))),
                keep = static_cast<float>(1 - u.learning_rate * u.weight_decay);
    if (!updates_on_host(value)) {
      value.mul_(keep).sub_(direction, rate);
      return;
    }
    const float* d = direction.const_data_ptr<float>();
    float* p = static_cast<float*>(value.data_ptr());
    const int64_t count = grad.numel();
#pragma omp parallel for schedule(static) if (count > 32768)
    for (int64_t i = 0; i < count; ++i) p[i] = p[i] * keep - rate * d[i];
  }

 private:
  // Updates the momentum, and returns Nesterov's look-ahead.
  at::Tensor moved(const Update& u, const at::Tensor& grad, const at::Tensor& momentum) const {
    if (!updates_on_host(momentum)) {
      const at::Tensor now = grad * u.grad_scale;
      momentum.lerp_(now, 1 - momentum_);
      return momentum.lerp(now, 1 - momentum_);
    }
    at::Tensor ahead = at::empty_like(grad);
    const float* g = grad.const_data_ptr<float>();
    float *m = momentum.mutable_data_ptr<float>(), *to = ahead.mutable_data_ptr<float>();
    const float share = static_cast<float>(1 - momentum_), clip = static_cast<float>(u.grad_scale);
    const int64_t count = grad.numel();
#pragma omp parallel for schedule(static) if (count > 32768)
    for (int64_t i = 0; i < count; ++i) {
      const float now = g[i] * clip;
      m[i] = m[i] + share * (now - m[i]);
      to[i] = m[i] - share * (m[i] - now);
    }
    return ahead;
  }

  double scale(int64_t rows, int64_t columns) const {
    const double r = static_cast<double>(rows), c = static_cast<double>(columns);
    if (settings_.adjust_lr == MuonKeys::AdjustLr::kOriginal)
      return std::sqrt(std::max(1.0, r / c));
    return 0.2 * std::sqrt(std::max(r, c));  // Liu et al., arXiv 2502.16982
  }

  double momentum_;
  MuonKeys settings_;
  std::unique_ptr<UpdateRule> adamw_;
};

const Registered<OptimizerKind> kMuon(
    &optimizers,
    {"muon",
     {.make = &make_rule<Muon>,
      .betas = {{0.9, 0.999}},
      .eps = 1e-8,
      .momentum = 0.95,
      .own_keys = []() -> std::unique_ptr<OptimizerKeys> { return std::make_unique<MuonKeys>(); }},
     "orthogonalized momentum on hidden matrices, AdamW on embeddings, head, norms and biases",
     "Jordan et al., kellerjordan.github.io/posts/muon; rates of Liu et al., arXiv 2502.16982"});

}  // namespace
}  // namespace temper::train
