#include "temper/nn/state_layers.h"

#include <ATen/ATen.h>

#include "temper/base/error.h"
#include "temper/nn/token_share.h"
#include "temper/nn/weights/read_rows.h"

namespace temper::nn {
namespace {

std::vector<std::unique_ptr<Linear>> delta_projections(Module& parent, const DeltaNetConfig& c) {
  const ops::DeltaRuleSpec& r = c.rule;
  const int64_t values = r.value_heads * r.value_dim;
  std::vector<std::unique_ptr<Linear>> layers;
  const auto add = [&](const char* name, int64_t outputs) {
    layers.push_back(std::make_unique<Linear>(parent, name, c.hidden_size, outputs, false,
                                              c.init_std, LinearSplit::kColumns));
  };
  if (c.joined) {
    add("in_proj_qkvz", r.qkv_width() + values);
    add("in_proj_ba", 2 * r.value_heads);
    return layers;
  }
  add("in_proj_qkv", r.qkv_width());
  add("in_proj_z", values);
  add("in_proj_b", r.value_heads);
  add("in_proj_a", r.value_heads);
  layers[0]->set_joined({r.key_heads * r.key_dim, r.key_heads * r.key_dim, values});
  return layers;
}

// What a recurrence reads and gives where ranks divide the tokens: it is computed whole on each.
at::Tensor all_tokens(const Context& context, const at::Tensor& own) {
  return context.share ? context.share->gather(own) : own;
}
at::Tensor own_tokens(const Context& context, const at::Tensor& all) {
  return context.share ? context.share->select(all) : all;
}

}  // namespace

void StateLayer::accept(const std::string& path, const LayerVisitor& visitor) {
  if (visitor.state_layer) visitor.state_layer(path, *this);
}

ops::CarriedStates StateLayer::states(const Context& context, int64_t part) const {
  return context.cache ? context.cache->states(layer_, part) : ops::CarriedStates();
}

Convolution::Convolution(Module& parent, std::string name, int64_t channels, int64_t taps,
                         bool has_bias, double init_std)
    : Module(parent, std::move(name)),
      weight(*this, "weight", {channels, 1, taps}, {Init::Kind::kNormal, init_std}) {
  weight.set_divides(0);
  if (has_bias)
    bias.emplace(*this, "bias", std::vector<int64_t>{channels}, Init{Init::Kind::kZeros, 0})
        .set_divides(0);
}

ops::ConvolutionWeights Convolution::weights() const {
  return {weight.value(), bias ? bias->value() : at::Tensor()};
}

void Convolution::split(const std::shared_ptr<dist::Group>& group,
                        const std::vector<int64_t>& joined) {
  weight.split(group, joined);
  if (bias) bias->split(group, joined);
}

ShortConvolution::ShortConvolution(Module& parent, std::string name, int64_t layer, int64_t hidden,
                                   int64_t taps, bool bias, double init_std)
    : StateLayer(parent, std::move(name), layer),
      conv(*this, "conv", hidden, taps, bias, init_std),
      in_proj(*this, "in_proj", hidden, 3 * hidden, bias, init_std, LinearSplit::kColumns),
      out_proj(*this, "out_proj", hidden, hidden, bias, init_std, LinearSplit::kRows) {
  in_proj.set_joined({hidden, hidden, hidden});
}

at::Tensor ShortConvolution::forward(const ops::LinearInput& x, const Context& context) {
  const at::Tensor all = in_proj.forward(x, context);
  const int64_t width = all.size(1) / 3;
  const auto part = [&](int64_t i) { return all.narrow(1, i * width, width).contiguous(); };
  const at::Tensor in =
      ops::materialize(ops::LinearInput::gated(part(0), part(2), ops::Activation::kIdentity));
  const at::Tensor out =
      own_tokens(context, ops::short_convolution(conv.weights(), /*silu=*/false, context.whole(),
                                                 all_tokens(context, in), states(context, 0)));
  const ReadRows read(context);
  return out_proj.forward(
      ops::LinearInput::gated(read.select(part(1)), read.select(out), ops::Activation::kIdentity),
      read.context());
}

void ShortConvolution::split(const std::shared_ptr<dist::Group>& group, const std::string& where) {
  const int64_t channels = conv.weight.shape()[0];
  check<ConfigError>(channels % group->size() == 0, where, ": ", channels,
                     " channels are not divisible by ", group->size());
  conv.split(group);
}

GatedDeltaNet::GatedDeltaNet(Module& parent, std::string name, int64_t layer,
                             const DeltaNetConfig& c)
    : StateLayer(parent, std::move(name), layer),
      dt_bias(*this, "dt_bias", {c.rule.value_heads}, {Init::Kind::kOnes, 0}),
      A_log(*this, "A_log", {c.rule.value_heads}, {Init::Kind::kLogUniform, 0}),
      conv1d(*this, "conv1d", c.rule.qkv_width(), c.taps, false, c.init_std),
      norm(*this, "norm", c.rule.value_dim, c.norm_eps),
      out_proj(*this, "out_proj", c.rule.value_heads * c.rule.value_dim, c.hidden_size, false,
               c.init_std, LinearSplit::kRows),
      projections(delta_projections(*this, c)),
      rule_(c.rule) {
  dt_bias.set_divides(0);
  A_log.set_divides(0);
}

std::vector<int64_t> GatedDeltaNet::state_sizes() const {
  return {conv1d.state_size(), rule_.value_heads * rule_.key_dim * rule_.value_dim};
}

GatedDeltaNet::Projected GatedDeltaNet::project_all(const ops::LinearInput& x,
                                                    const Context& context) {
  std::vector<Linear*> layers;
  for (const auto& layer : projections) layers.push_back(layer.get());
  const std::vector<at::Tensor> out = project(x, layers, context);
  if (out.size() == 4) return {out[0], out[1], out[2], out[3]};
  // By key head: its query, its key, the values and gates of its value heads; rates, then decays.
  const int64_t n = out[0].size(0), share = rule_.value_heads / rule_.key_heads,
                values = share * rule_.value_dim;
  const at::Tensor by_head = out[0].view({n, rule_.key_heads, -1});
  int64_t begin = 0;
  const auto next = [&](int64_t width) {
    begin += width;
    return by_head.narrow(2, begin - width, width)
        .reshape({n, rule_.key_heads * width})
        .contiguous();
  };
  const at::Tensor q = next(rule_.key_dim), k = next(rule_.key_dim), v = next(values);
  const at::Tensor z = next(values), ba = out[1].view({n, rule_.key_heads, 2 * share});
  const auto gates = [&](int64_t from) {
    return ba.narrow(2, from, share).reshape({n, rule_.value_heads}).contiguous();
  };
  return {at::cat({q, k, v}, 1), z, gates(0), gates(share)};
}

at::Tensor GatedDeltaNet::forward(const ops::LinearInput& x, const Context& context) {
  const Projected in = project_all(x, context);
  const at::Tensor qkv = ops::short_convolution(conv1d.weights(), /*silu=*/true, context.whole(),
                                                all_tokens(context, in.qkv), states(context, 0));
  const at::Tensor heads = own_tokens(
      context, ops::gated_delta_rule(rule_, context.whole(),
                                     {qkv, all_tokens(context, in.a), all_tokens(context, in.b),
                                      A_log.value(), dt_bias.value()},
                                     states(context, 1)));
  const ReadRows read(context);
  const at::Tensor out = read.select(heads);
  const at::Tensor normed = norm.forward(out.view({-1, rule_.value_dim})).view(out.sizes());
  return out_proj.forward(
      ops::LinearInput::gated(read.select(in.z), normed, ops::Activation::kSilu), read.context());
}

void GatedDeltaNet::split(const std::shared_ptr<dist::Group>& group, const std::string& where) {
  const int ranks = group->size();
  check<ConfigError>(rule_.key_heads % ranks == 0, where, ": linear_num_key_heads ",
                     rule_.key_heads, " is not divisible by ", ranks);
  const int64_t keys = rule_.key_heads * rule_.key_dim;
  conv1d.split(group, {keys, keys, rule_.value_heads * rule_.value_dim});
  dt_bias.split(group);
  A_log.split(group);
  norm.weight.set_gradient_is_partial();
  rule_.key_heads /= ranks;
  rule_.value_heads /= ranks;
}

}  // namespace temper::nn
