#include "temper/nn/blocks.h"

#include <algorithm>

#include "temper/base/error.h"
#include "temper/nn/read_rows.h"
#include "temper/ops/attention.h"

namespace temper::nn {

Attention::Attention(Module& parent, std::string name, const AttentionConfig& c, int64_t layer,
                     std::shared_ptr<Rotary> rotary)
    : Module(parent, std::move(name)),
      q_proj(*this, "q_proj", c.hidden_size, c.num_heads * c.head_dim, c.qkv_bias, c.init_std),
      k_proj(*this, "k_proj", c.hidden_size, c.num_kv_heads * c.head_dim, c.qkv_bias, c.init_std),
      v_proj(*this, "v_proj", c.hidden_size, c.num_kv_heads * c.head_dim, c.qkv_bias, c.init_std),
      o_proj(*this, "o_proj", c.num_heads * c.head_dim, c.hidden_size, c.o_bias, c.init_std),
      config_(c),
      layer_(layer),
      rotary_(std::move(rotary)) {
  if (!c.qk_norm) return;
  q_norm.emplace(*this, "q_norm", c.head_dim, c.norm_eps, c.norm_one_plus);
  k_norm.emplace(*this, "k_norm", c.head_dim, c.norm_eps, c.norm_one_plus);
}

void Attention::split(const std::shared_ptr<dist::Group>& group, const std::string& where) {
  const int ranks = group->size();
  check<ConfigError>(config_.num_heads % ranks == 0, where, ": num_attention_heads ",
                     config_.num_heads, " is not divisible by ", ranks);
  check<ConfigError>(config_.num_kv_heads % ranks == 0, where, ": num_key_value_heads ",
                     config_.num_kv_heads, " is not divisible by ", ranks);
  config_.num_heads /= ranks;
  config_.num_kv_heads /= ranks;
  // Each rank's heads are normalised by the same weights.
  if (q_norm) q_norm->weight.set_gradient_is_partial();
  if (k_norm) k_norm->weight.set_gradient_is_partial();
}

ops::AttentionSpec Attention::spec() const {
  ops::AttentionSpec spec{.num_heads = config_.num_heads,
                          .num_kv_heads = config_.num_kv_heads,
                          .head_dim = config_.head_dim,
                          .scale = config_.scale,
                          .soft_cap = config_.soft_cap,
                          .window = config_.window,
                          .q_norm = {},
                          .k_norm = {},
                          .norm_eps = config_.norm_eps,
                          .norm_one_plus = config_.norm_one_plus,
                          .cache_dtype = cache_dtype_,
                          .arithmetic = q_proj.weight.arithmetic()};
  if (q_norm) spec.q_norm = q_norm->weight.value();
  if (k_norm) spec.k_norm = k_norm->weight.value();
  return spec;
}

at::Tensor Attention::forward(const ops::LinearInput& x, const Context& context) {
  const std::vector<at::Tensor> qkv = project(x, {&q_proj, &k_proj, &v_proj}, context);
  const ops::RotaryTable rotary = table(context, qkv[0]);
  const ReadRows read(context);
  const auto project_out = [&](const at::Tensor& heads) {
    return o_proj.forward(read.select(heads), read.context());
  };
  if (!context.cache)
    return project_out(ops::attention(spec(), rotary, context.forest, qkv[0], qkv[1], qkv[2]));
  return project_out(context.cache->attend(layer_, spec(), rotary, qkv[0], qkv[1], qkv[2]));
}

ops::RotaryTable Attention::table(const Context& context, const at::Tensor& q) {
  const std::vector<int64_t>& position = context.forest->position;
  return rotary_->table(*std::max_element(position.begin(), position.end()) + 1, q.options());
}

Attention::Heads Attention::heads(const ops::LinearInput& x, const Context& context) {
  const std::vector<at::Tensor> qk = project(x, {&q_proj, &k_proj}, context);
  return {spec(), table(context, qk[0]), qk[0], qk[1]};
}

void Attention::accept(const std::string& path, const LayerVisitor& visitor) {
  if (visitor.attention) visitor.attention(path, *this);
}

GatedMlp::GatedMlp(Module& parent, std::string name, int64_t hidden, int64_t intermediate,
                   bool bias, ops::Activation activation, double init_std)
    : Module(parent, std::move(name)),
      gate_proj(*this, "gate_proj", hidden, intermediate, bias, init_std),
      up_proj(*this, "up_proj", hidden, intermediate, bias, init_std),
      down_proj(*this, "down_proj", intermediate, hidden, bias, init_std),
      activation_(activation) {}

at::Tensor GatedMlp::forward(const ops::LinearInput& x, const Context& context) {
  const std::vector<at::Tensor> gate_up = project(x, {&gate_proj, &up_proj}, context);
  return down_proj.forward(ops::LinearInput::gated(gate_up[0], gate_up[1], activation_), context);
}

}  // namespace temper::nn
