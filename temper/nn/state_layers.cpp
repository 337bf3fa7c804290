#include "temper/nn/state_layers.h"

#include <ATen/ATen.h>

#include "temper/base/error.h"
#include "temper/nn/column_share.h"
#include "temper/nn/weights/read_rows.h"
#include "temper/ops/autograd.h"

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

// Some key heads, with their value heads, of a delta net.
struct DeltaPart {
  ops::DeltaRuleSpec rule;
  Columns qkv, value_heads, values;  // its columns of the inputs, and of the outputs
};

DeltaPart part_of_rule(const ops::DeltaRuleSpec& rule, int rank, int ranks) {
  const ColumnRange heads = part_of(rule.key_heads, rank, ranks);
  const int64_t share = rule.value_heads / rule.key_heads, keys = rule.key_heads * rule.key_dim;
  const auto scaled = [&](int64_t by, int64_t from) {
    return ColumnRange{from + heads.begin * by, from + heads.end * by};
  };
  DeltaPart part{rule, {}, {scaled(share, 0)}, {scaled(share * rule.value_dim, 0)}};
  part.qkv = {scaled(rule.key_dim, 0), scaled(rule.key_dim, keys),
              scaled(share * rule.value_dim, 2 * keys)};
  part.rule.key_heads = heads.end - heads.begin;
  part.rule.value_heads = part.rule.key_heads * share;
  return part;
}

// What a rank without heads or channels gives, x [N, 0], as a function of what the other ranks'
// outputs are functions of: all ranks take part in the same exchanges of the backward pass.
at::Tensor nothing_of(const at::Tensor& x, const ops::Tensors& weights) {
  ops::Tensors inputs{x};
  inputs.insert(inputs.end(), weights.begin(), weights.end());
  ops::Recording call(inputs);
  return call.output(at::empty_like(x), [inputs](const ops::Gradients& d) {
    ops::Tensors none{d[0]};
    for (size_t i = 1; i < inputs.size(); ++i)
      none.push_back(d.wanted(i) ? at::zeros_like(inputs[i]) : at::Tensor());
    return none;
  });
}

// The columns of [qkv, a, b] that a part reads.
Columns read_by(const DeltaPart& part, const ops::DeltaRuleSpec& whole) {
  Columns columns = part.qkv;
  for (const int64_t from : {whole.qkv_width(), whole.qkv_width() + whole.value_heads})
    columns.push_back({from + part.value_heads[0].begin, from + part.value_heads[0].end});
  return columns;
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
  const at::Tensor out = convolved(in, context);
  const ReadRows read(context);
  return out_proj.forward(
      ops::LinearInput::gated(read.select(part(1)), read.select(out), ops::Activation::kIdentity),
      read.context());
}

at::Tensor ShortConvolution::convolved(const at::Tensor& x, const Context& context) {
  const ops::ConvolutionWeights weights = conv.weights();
  if (!context.share)
    return ops::short_convolution(weights, /*silu=*/false, context.forest, x, states(context, 0));
  const dist::Group& ranks = *context.share->ranks();
  std::vector<Columns> channels;
  for (int r = 0; r < ranks.size(); ++r) channels.push_back({part_of(x.size(1), r, ranks.size())});
  const Columns& own = channels[static_cast<size_t>(ranks.rank())];
  const ColumnShare share(context.share, channels, x.size(1));
  const at::Tensor in = share.to_columns(x);
  if (in.size(1) == 0) return share.to_tokens(nothing_of(in, {weights.weight, weights.bias}));
  return share.to_tokens(
      ops::short_convolution({take(weights.weight, own, 0),
                              weights.bias.defined() ? take(weights.bias, own, 0) : weights.bias},
                             /*silu=*/false, context.whole(), in));
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
  const at::Tensor heads = recurrence(in, context);
  const ReadRows read(context);
  const at::Tensor out = read.select(heads);
  const at::Tensor normed = norm.forward(out.view({-1, rule_.value_dim})).view(out.sizes());
  return out_proj.forward(
      ops::LinearInput::gated(read.select(in.z), normed, ops::Activation::kSilu), read.context());
}

at::Tensor GatedDeltaNet::recurrence(const Projected& in, const Context& context) {
  const ops::ConvolutionWeights weights = conv1d.weights();
  if (!context.share) {
    const at::Tensor qkv =
        ops::short_convolution(weights, /*silu=*/true, context.forest, in.qkv, states(context, 0));
    return ops::gated_delta_rule(rule_, context.forest,
                                 {qkv, in.a, in.b, A_log.value(), dt_bias.value()},
                                 states(context, 1));
  }
  const dist::Group& ranks = *context.share->ranks();
  std::vector<Columns> read, given;
  for (int r = 0; r < ranks.size(); ++r) {
    const DeltaPart part = part_of_rule(rule_, r, ranks.size());
    read.push_back(read_by(part, rule_));
    given.push_back(part.values);
  }
  const DeltaPart own = part_of_rule(rule_, ranks.rank(), ranks.size());
  const ColumnShare to(context.share, read, rule_.qkv_width() + 2 * rule_.value_heads),
      back(context.share, given, rule_.value_heads * rule_.value_dim);
  const at::Tensor all = to.to_columns(at::cat({in.qkv, in.a, in.b}, 1));
  if (own.rule.key_heads == 0)
    return back.to_tokens(nothing_of(all, {weights.weight, A_log.value(), dt_bias.value()}));
  const int64_t width = own.rule.qkv_width(), heads = own.rule.value_heads;
  const auto columns = [&](int64_t from, int64_t count) {
    return all.narrow(1, from, count).contiguous();
  };
  const at::Tensor qkv = ops::short_convolution({take(weights.weight, own.qkv, 0), weights.bias},
                                                /*silu=*/true, context.whole(), columns(0, width));
  return back.to_tokens(ops::gated_delta_rule(
      own.rule, context.whole(),
      {qkv, columns(width, heads), columns(width + heads, heads),
       take(A_log.value(), own.value_heads, 0), take(dt_bias.value(), own.value_heads, 0)}));
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
