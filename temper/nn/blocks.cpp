#include "temper/nn/blocks.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "temper/base/error.h"
#include "temper/nn/token_share.h"
#include "temper/nn/weights/read_rows.h"
#include "temper/ops/layers/attention.h"

namespace temper::nn {

namespace {

struct Projection {
  const char* name;
  int64_t outputs;
};

// Layers over one input, which ranks divide by their outputs: one for each, or one that joins them.
std::vector<std::unique_ptr<Linear>> make_projections(Module& parent, int64_t in, bool bias,
                                                      double init_std,
                                                      const std::vector<Projection>& each,
                                                      const char* joined_name) {
  std::vector<std::unique_ptr<Linear>> layers;
  if (!joined_name) {
    for (const Projection& one : each)
      layers.push_back(std::make_unique<Linear>(parent, one.name, in, one.outputs, bias, init_std,
                                                LinearSplit::kColumns));
    return layers;
  }
  std::vector<int64_t> outputs;
  int64_t sum = 0;
  for (const Projection& one : each) {
    outputs.push_back(one.outputs);
    sum += one.outputs;
  }
  layers.push_back(std::make_unique<Linear>(parent, joined_name, in, sum, bias, init_std,
                                            LinearSplit::kColumns));
  layers[0]->set_joined(std::move(outputs));
  return layers;
}

// Their outputs, of the widths that this rank has of each.
std::vector<at::Tensor> project_each(const ops::LinearInput& x,
                                     const std::vector<std::unique_ptr<Linear>>& layers,
                                     const std::vector<int64_t>& widths, const Context& context) {
  std::vector<Linear*> chosen;
  for (const auto& layer : layers)
    if (chosen.size() < widths.size()) chosen.push_back(layer.get());
  std::vector<at::Tensor> outputs = project(x, chosen, context);
  if (layers.size() >= widths.size()) return outputs;
  const at::Tensor joined = outputs[0];
  outputs.clear();
  int64_t begin = 0;
  for (const int64_t width : widths) {
    outputs.push_back(joined.narrow(1, begin, width).contiguous());
    begin += width;
  }
  return outputs;
}

}  // namespace

namespace {

std::vector<Projection> projections_of(const AttentionConfig& c) {
  std::vector<Projection> each{{"q_proj", c.num_heads * c.head_dim * (c.output_gate ? 2 : 1)}};
  if (!c.shares_keys) each.push_back({"k_proj", c.num_kv_heads * c.head_dim});
  if (!c.shares_keys && !c.keys_are_values) each.push_back({"v_proj", c.num_kv_heads * c.head_dim});
  return each;
}

}  // namespace

Attention::Attention(Module& parent, std::string name, const AttentionConfig& c, int64_t layer,
                     std::shared_ptr<Rotary> rotary)
    : Module(parent, std::move(name)),
      projections(make_projections(*this, c.hidden_size, c.qkv_bias, c.init_std, projections_of(c),
                                   c.joined_qkv ? "qkv_proj" : nullptr)),
      o_proj(*this, c.o_proj_name, c.num_heads * c.head_dim, c.hidden_size, c.o_bias, c.init_std,
             LinearSplit::kRows),
      config_(c),
      layer_(layer),
      rotary_(std::move(rotary)) {
  set_role(Role::kAttention);
  if (c.sinks)
    sinks
        .emplace(*this, "sinks", std::vector<int64_t>{c.num_heads},
                 Init{Init::Kind::kNormal, c.init_std})
        .set_divides(0);
  if (!c.qk_norm) return;
  const auto width = [&](int64_t heads) {
    return c.qk_norm_is_whole ? heads * c.head_dim : c.head_dim;
  };
  q_norm.emplace(*this, c.q_norm_name, width(c.num_heads), c.norm_eps, c.norm_one_plus);
  if (c.shares_keys) return;
  k_norm.emplace(*this, c.k_norm_name, width(c.num_kv_heads), c.norm_eps, c.norm_one_plus);
}

Attention::Attention(Module& parent, std::string name, const AttentionConfig& c, int64_t layer,
                     std::shared_ptr<Rotary> rotary, int64_t value_dim)
    : Module(parent, std::move(name)),
      o_proj(*this, "o_proj", c.num_heads * value_dim, c.hidden_size, c.o_bias, c.init_std,
             LinearSplit::kRows),
      config_(c),
      layer_(layer),
      rotary_(std::move(rotary)) {
  set_role(Role::kAttention);
}

void Attention::split(const std::shared_ptr<dist::Group>& group, const std::string& where) {
  const int ranks = group->size();
  check<ConfigError>(config_.num_heads % ranks == 0, where, ": num_attention_heads ",
                     config_.num_heads, " is not divisible by ", ranks);
  check<ConfigError>(config_.num_kv_heads % ranks == 0, where, ": num_key_value_heads ",
                     config_.num_kv_heads, " is not divisible by ", ranks);
  check<ConfigError>(!config_.qk_norm || !config_.qk_norm_is_whole, where,
                     ": the norms of queries and keys are over all heads at once, so that ranks "
                     "cannot divide these among them; expected 1");
  check<ConfigError>(!config_.norm_values, where,
                     ": layers that share keys and values are not divided among ranks; expected 1");
  config_.num_heads /= ranks;
  config_.num_kv_heads /= ranks;
  if (sinks) sinks->split(group);
  // Each rank's heads are normalized by the same weights.
  if (q_norm) q_norm->weight.set_gradient_is_partial();
  if (k_norm) k_norm->weight.set_gradient_is_partial();
}

ops::AttentionSpec Attention::spec() const {
  ops::AttentionSpec spec{.num_heads = config_.num_heads,
                          .num_kv_heads = config_.num_kv_heads,
                          .head_dim = config_.head_dim,
                          .scale = config_.scale,
                          .soft_cap = config_.soft_cap,
                          .causal = config_.causal,
                          .window = config_.window,
                          .q_norm = {},
                          .k_norm = {},
                          .norm_eps = config_.norm_eps,
                          .norm_one_plus = config_.norm_one_plus,
                          .norm_rotated = config_.norm_rotated,
                          .sinks = sinks ? sinks->value() : at::Tensor(),
                          .cache_dtype = cache_dtype_,
                          .arithmetic = o_proj.weight.arithmetic()};
  if (config_.qk_norm_is_whole) return spec;
  if (q_norm) spec.q_norm = q_norm->weight.value();
  if (k_norm && !config_.norm_values) spec.k_norm = k_norm->weight.value();
  return spec;
}

at::Tensor Attention::forward(const ops::LinearInput& x, const Context& context,
                              KeysAndValues* shared) {
  at::Tensor gate;
  std::vector<at::Tensor> qkv = project_heads(x, context, true, gate);
  if (config_.shares_keys)
    qkv.insert(qkv.end(), {shared->k, shared->v});
  else if (shared)
    *shared = {qkv[1], qkv[2]};
  const ops::RotaryTable rotary = table(context, qkv[0]);
  const ReadRows read(context);
  const auto project_out = [&](const at::Tensor& heads) {
    const at::Tensor read_heads = read_values(read.select(heads), read.context());
    const ops::LinearInput in =
        gate.defined()
            ? ops::LinearInput::gated(read.select(gate), read_heads, ops::Activation::kSigmoid)
            : ops::LinearInput::plain(read_heads);
    return o_proj.forward(in, read.context());
  };
  const ops::AttentionSpec how = spec_in(context);
  const at::Tensor values = how.values_in_keys ? at::Tensor() : qkv[2];
  if (context.share)
    return project_out(context.share->attention(how, rotary, qkv[0], qkv[1], values));
  if (!context.cache)
    return project_out(ops::attention(how, rotary, context.forest, qkv[0], qkv[1], values));
  return project_out(context.cache->attend(layer_, how, rotary, qkv[0], qkv[1], values));
}

at::Tensor Attention::norm_heads(const at::Tensor& x, const at::Tensor& weight) const {
  const at::Tensor by_head = x.view({-1, config_.head_dim});
  return ops::materialize(ops::LinearInput::rms_norm(by_head, weight, config_.norm_eps))
      .view(x.sizes());
}

std::vector<at::Tensor> Attention::project_heads(const ops::LinearInput& x, const Context& context,
                                                 bool values, at::Tensor& gate) {
  const int64_t kv = config_.num_kv_heads * config_.head_dim;
  std::vector<int64_t> widths{config_.num_heads * config_.head_dim * (config_.output_gate ? 2 : 1)};
  if (!config_.shares_keys) widths.push_back(kv);
  if (values && !config_.shares_keys && !config_.keys_are_values) widths.push_back(kv);
  std::vector<at::Tensor> heads = project_each(x, projections, widths, context);
  if (config_.output_gate) {
    const int64_t n = heads[0].size(0), dim = config_.head_dim;
    const at::Tensor both = heads[0].view({n, config_.num_heads, 2 * dim});
    gate = both.narrow(2, dim, dim).reshape({n, config_.num_heads * dim}).contiguous();
    heads[0] = both.narrow(2, 0, dim).reshape({n, config_.num_heads * dim}).contiguous();
  }
  if (config_.norm_values && !config_.shares_keys) {
    if (values) {
      if (config_.keys_are_values) heads.push_back(heads[1]);
      heads[2] = norm_heads(heads[2], at::ones({config_.head_dim}, heads[2].options()));
    }
    heads[1] = norm_heads(heads[1], k_norm->weight.value());
  }
  if (!config_.qk_norm || !config_.qk_norm_is_whole) return heads;
  heads[0] = q_norm->forward(heads[0]);
  heads[1] = k_norm->forward(heads[1]);
  return heads;
}

ops::RotaryTable Attention::table(const Context& context, const at::Tensor& q) {
  if (!rotary_) return {};
  return rotary_->table(*context.whole(), q.options());
}

Attention::Heads Attention::heads(const ops::LinearInput& x, const Context& context) {
  at::Tensor gate;
  const std::vector<at::Tensor> qk = project_heads(x, context, false, gate);
  return {spec_in(context), table(context, qk[0]), qk[0], qk[1]};
}

void Attention::accept(const std::string& path, const LayerVisitor& visitor) {
  if (visitor.attention) visitor.attention(path, *this);
}

GatedMlp::GatedMlp(Module& parent, std::string name, int64_t hidden, int64_t intermediate,
                   bool bias, ops::Activation activation, double init_std, bool joined,
                   const MlpNames& names)
    : Module(parent, std::move(name)),
      projections(make_projections(*this, hidden, bias, init_std,
                                   {{names.gate, intermediate}, {names.up, intermediate}},
                                   joined ? "gate_up_proj" : nullptr)),
      down_proj(*this, names.down, intermediate, hidden, bias, init_std, LinearSplit::kRows),
      activation_(activation) {
  set_role(Role::kMlp);
}

at::Tensor GatedMlp::forward(const ops::LinearInput& x, const Context& context) {
  const int64_t width = down_proj.weight.shape()[1];
  const std::vector<at::Tensor> gate_up = project_each(x, projections, {width, width}, context);
  return down_proj.forward(ops::LinearInput::gated(gate_up[0], gate_up[1], activation_), context);
}

}  // namespace temper::nn
