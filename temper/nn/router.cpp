#include "temper/nn/router.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "temper/ops/pointwise.h"

namespace temper::nn {

Router::Router(Module& parent, std::string name, int64_t hidden, const ops::RouterSpec& spec,
               double init_std, bool correction, bool has_bias)
    : Linear(parent, std::move(name), hidden, spec.experts, false, init_std), spec(spec) {
  set_role(Role::kRouter);
  if (has_bias)
    bias.emplace(*this, "bias", std::vector<int64_t>{spec.experts},
                 Init{Init::Kind::kNormal, init_std});
  if (!correction) return;
  e_score_correction_bias.emplace(*this, "e_score_correction_bias",
                                  std::vector<int64_t>{spec.experts}, Init{Init::Kind::kZeros, 0});
  e_score_correction_bias->set_constant();
}

ops::Routing Router::route(const at::Tensor& logits) const {
  at::Tensor correction;
  if (e_score_correction_bias) correction = e_score_correction_bias->value().to(logits.options());
  return ops::route(spec, logits, correction);
}

void Router::accept(const std::string& path, const LayerVisitor& visitor) {
  if (visitor.router) visitor.router(path, *this);
}

at::Tensor RouterWatch::see(int64_t layer, const at::Tensor& logits, const ops::ExpertRows& rows,
                            const at::Tensor& y) {
  if (counting) {
    Layer& of = layers[layer];
    of.chosen.resize(static_cast<size_t>(logits.size(1)));
    for (size_t g = 0; g < rows.experts.size(); ++g)
      of.chosen[static_cast<size_t>(rows.experts[g])] +=
          static_cast<double>(rows.offsets[g + 1] - rows.offsets[g]);
    of.tokens += static_cast<double>(logits.size(0));
    if (loss && !choices_only) {
      const at::NoGradGuard no_grad;
      const at::Tensor sums =
          ops::sum_of_rows(ops::router_probabilities(logits.detach()).to(at::kDouble)).cpu();
      of.probability.resize(of.chosen.size());
      for (size_t e = 0; e < of.chosen.size(); ++e)
        of.probability[e] += sums.const_data_ptr<double>()[e];
    }
  }
  return loss && !choices_only ? ops::with_balance_loss(y, logits, loss) : y;
}

}  // namespace temper::nn
