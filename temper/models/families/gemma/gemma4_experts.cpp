#include <ATen/ATen.h>

#include <cmath>
#include <vector>

#include "temper/base/error.h"
#include "temper/models/families/gemma/gemma4.h"
#include "temper/ops/layers/embedding.h"

namespace temper::models {
namespace {

// transformers' config class has no values of its own for them.
int64_t required(const HfConfig& config, const char* key, int64_t most) {
  if (!config.has(key))
    config.fail(key, "is missing; expected a number, as `enable_moe_block` is true");
  return config.integer(key, 0, most);
}

nn::ExpertsConfig experts_of(const DecoderConfig& c) {
  nn::ExpertsConfig experts{.count = c.sparse->router.experts,
                            .hidden = c.hidden_size,
                            .width = c.sparse->width,
                            .init_std = c.initializer_range};
  experts.unit.activation = c.activation;
  return experts;
}

}  // namespace

void read_gemma4_experts(const HfConfig& config, DecoderConfig& c) {
  SparseConfig sparse{.router = {.experts = required(config, "num_experts", kMostExperts),
                                 .chosen = required(config, "top_k_experts", kMostExperts)},
                      .width = required(config, "moe_intermediate_size", INT32_MAX)};
  sparse.router.normalize = true;
  if (sparse.router.chosen > sparse.router.experts)
    config.fail("top_k_experts",
                str(sparse.router.chosen, " of ", sparse.router.experts, " experts"));
  set_sparse(c, std::move(sparse));
}

Gemma4Experts::Router::Router(nn::Module& block, const DecoderConfig& c)
    : Module(block, "router"),
      proj(*this, "proj", c.hidden_size, c.sparse->router, c.initializer_range),
      scale(*this, "scale", {c.hidden_size}, {nn::Init::Kind::kOnes, 0}),
      per_expert_scale(*this, "per_expert_scale", {c.sparse->router.experts},
                       {nn::Init::Kind::kOnes, 0}) {
  set_role(nn::Role::kRouter);
}

Gemma4Experts::Gemma4Experts(nn::Module& block, const DecoderConfig& c, int64_t layer)
    : Module(block, Module::Unlisted()),
      router_(block, c),
      experts_(block, "experts", experts_of(c)),
      post_mlp_(block, "post_feedforward_layernorm_1", c.hidden_size, c.attention.norm_eps),
      post_experts_(block, "post_feedforward_layernorm_2", c.hidden_size, c.attention.norm_eps),
      pre_experts_(block, "pre_feedforward_layernorm_2", c.hidden_size, c.attention.norm_eps),
      eps_(c.attention.norm_eps),
      input_scale_(1 / std::sqrt(static_cast<double>(c.hidden_size))),
      layer_(layer) {}

at::Tensor Gemma4Experts::scaled_weights(const ops::Routing& routing) const {
  const at::Tensor on_host = routing.expert.to(at::kCPU).contiguous();
  const int64_t* const of = on_host.const_data_ptr<int64_t>();
  const at::Tensor scales = ops::select_rows(router_.per_expert_scale.value().unsqueeze(1),
                                             std::vector<int64_t>(of, of + on_host.numel()));
  return routing.weight * scales.view_as(routing.weight).to(routing.weight.scalar_type());
}

at::Tensor Gemma4Experts::forward(const at::Tensor& h, const at::Tensor& fed,
                                  const nn::Context& context) {
  const ops::LinearInput normed =
      ops::LinearInput::rms_norm(h, router_.scale.value() * input_scale_, eps_, false);
  const at::Tensor logits = router_.proj.forward(normed, context);
  const ops::Routing routing = router_.proj.route(logits);
  const ops::ExpertRows rows = ops::rows_by_expert(routing.expert, router_.proj.spec.experts);
  at::Tensor y = experts_.forward(pre_experts_.forward(h), scaled_weights(routing), rows, context);
  if (context.routers) y = context.routers->see(layer_, logits, rows, y);
  return ops::add_scaled(post_mlp_.forward(fed), post_experts_.forward(y));
}

}  // namespace temper::models
