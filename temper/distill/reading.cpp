#include "temper/distill/reading.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "temper/base/error.h"
#include "temper/ops/layers/embedding.h"

namespace temper::distill {

Side::Side(models::CausalLM& model, const nn::Context& base, Tap tap,
           const std::vector<int64_t>& layers)
    : model_(&model) {
  // Observed tensors: the input of each block in order, then the last block's output.
  std::map<int64_t, at::Tensor> seen;
  int64_t number = 0;
  const std::function<void(const at::Tensor&)> observe = [&](const at::Tensor& x) {
    const int64_t layer = tap == Tap::kOutput ? number - 1 : number;
    if (std::find(layers.begin(), layers.end(), layer) != layers.end()) seen[layer] = x;
    ++number;
  };
  nn::Context context = base;
  if (tap != Tap::kNone) context.observe = &observe;
  hidden_NH_ = model.forward(context);
  context.observe = nullptr;
  for (const int64_t layer : layers)
    check(seen.contains(layer), "this model does not show layer ", layer, " to distillation");
  if (tap == Tap::kOutput) outputs_ = std::move(seen);
  if (tap != Tap::kAttention) return;
  for (const auto& [layer, x] : seen) {
    const nn::Attention::Heads heads = model.body().attention_heads(layer, x, context);
    attention_[layer] = {heads.spec, heads.rotary, heads.q, heads.k};
  }
}

ops::TeacherHead head_at_targets(const Side& side, const train::ForwardPass& pass) {
  models::CausalLM& model = side.model();
  check(!model.adapts_head(), "the weight of a head that has an adapter is not all of it");
  return {{.scale = model.config().logit_scale, .soft_cap = model.config().final_soft_cap},
          ops::select_rows(side.hidden(), pass.row_M),
          model.head_weight().stored()};
}

}  // namespace temper::distill
