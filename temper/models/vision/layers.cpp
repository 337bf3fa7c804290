#include "temper/models/vision/layers.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "temper/ops/layers/embedding.h"

namespace temper::models {

LayerNorm::LayerNorm(nn::Module& parent, std::string name, int64_t width, double eps)
    : Module(parent, std::move(name)),
      weight(*this, "weight", {width}, {nn::Init::Kind::kOnes, 0}),
      bias(*this, "bias", {width}, {nn::Init::Kind::kZeros, 0}),
      eps_(eps) {
  set_role(nn::Role::kNorm);
}

at::Tensor LayerNorm::forward(const at::Tensor& x) const {
  const at::Tensor normed = ops::materialize(ops::LinearInput::layer_norm(x, weight.value(), eps_));
  const std::vector<int64_t> each(static_cast<size_t>(x.size(0)), 0);
  return ops::add_scaled(normed, ops::embedding(bias.value().view({1, -1}), each));
}

PositionTable::PositionTable(nn::Module& parent, std::string name, int64_t rows, int64_t width)
    : Module(parent, std::move(name)), weight(*this, "weight", {rows, width}, {}) {
  set_role(nn::Role::kEmbedding);
}

at::Tensor PositionTable::forward(const std::vector<Tap>& taps) const {
  at::Tensor sum;
  for (const Tap& tap : taps) {
    const at::Tensor rows = ops::embedding(weight.value(), tap.id);
    const at::Tensor by = at::tensor(tap.weight, at::kFloat)
                              .to(rows.options())
                              .unsqueeze(1)
                              .expand_as(rows)
                              .contiguous();
    const at::Tensor part =
        ops::materialize(ops::LinearInput::gated(rows, by, ops::Activation::kIdentity));
    sum = sum.defined() ? ops::add_scaled(sum, part) : part;
  }
  return sum;
}

at::Tensor activated(const at::Tensor& x, ops::Activation activation) {
  return ops::materialize(ops::LinearInput::gated(x, at::ones_like(x), activation));
}

TwoLayers::TwoLayers(nn::Module& parent, const Names& names, int64_t in, int64_t inner, int64_t out,
                     ops::Activation activation)
    : Module(parent, Unlisted()),
      first(parent, names.first, in, inner, true, 0.02),
      second(parent, names.second, inner, out, true, 0.02),
      activation_(activation) {}

at::Tensor TwoLayers::forward(const at::Tensor& x, const nn::Context& context) {
  const at::Tensor inner = first.forward(x, context);
  return second.forward(ops::LinearInput::gated(inner, at::ones_like(inner), activation_), context);
}

namespace {

std::vector<std::unique_ptr<nn::Linear>> tower_projections(nn::Module& parent,
                                                           const TowerAttention::Config& c) {
  std::vector<std::unique_ptr<nn::Linear>> layers;
  const int64_t width = c.num_heads * c.head_dim;
  const auto add = [&](const char* name, int64_t outputs) {
    layers.push_back(
        std::make_unique<nn::Linear>(parent, name, c.hidden_size, outputs, c.bias, 0.02));
  };
  if (c.joined) {
    add("qkv", 3 * width);
    return layers;
  }
  for (const char* name : {"q_proj", "k_proj", "v_proj"}) add(name, width);
  return layers;
}

}  // namespace

TowerAttention::TowerAttention(nn::Module& parent, std::string name, const Config& config)
    : Module(parent, std::move(name)),
      projections(tower_projections(*this, config)),
      out(*this, config.out_name, config.num_heads * config.head_dim, config.hidden_size,
          config.bias, 0.02),
      config_(config) {
  set_role(nn::Role::kAttention);
}

at::Tensor TowerAttention::forward(const at::Tensor& x, const nn::Context& context,
                                   const ops::RotaryTable& rotary) {
  std::vector<nn::Linear*> layers;
  for (const auto& layer : projections) layers.push_back(layer.get());
  std::vector<at::Tensor> qkv = project(ops::LinearInput::plain(x), layers, context);
  const int64_t width = config_.num_heads * config_.head_dim;
  if (config_.joined) {
    const at::Tensor all = qkv[0];
    qkv.clear();
    for (int64_t i = 0; i < 3; ++i) qkv.push_back(all.narrow(1, i * width, width).contiguous());
  }
  const ops::AttentionSpec spec{.num_heads = config_.num_heads,
                                .num_kv_heads = config_.num_heads,
                                .head_dim = config_.head_dim,
                                .scale = 1 / std::sqrt(static_cast<double>(config_.head_dim)),
                                .q_norm = {},
                                .k_norm = {},
                                .arithmetic = out.weight.arithmetic()};
  return out.forward(ops::attention(spec, rotary, context.forest, qkv[0], qkv[1], qkv[2]), context);
}

std::shared_ptr<const Forest> all_open(const std::vector<int64_t>& counts) {
  auto forest = std::make_shared<Forest>();
  for (const int64_t count : counts)
    forest->add_root(std::vector<int32_t>(static_cast<size_t>(count), 0));
  for (const int64_t count : counts)
    forest->open.insert(forest->open.end(), static_cast<size_t>(count), {0, count});
  return forest;
}

ops::RotaryTable axial_table(const nn::Rotary& rotary, const std::vector<int64_t>& first,
                             const std::vector<int64_t>& second, const at::TensorOptions& like) {
  const int64_t last = std::max(std::ranges::max(first), std::ranges::max(second));
  const ops::RotaryTable all = rotary.table(last + 1, like.requires_grad(false));
  const auto at = [&](const at::Tensor& values, const std::vector<int64_t>& place) {
    return values.index_select(0, at::tensor(place, at::kLong).to(values.device()));
  };
  ops::RotaryTable out;
  out.cos = at::cat({at(all.cos, first), at(all.cos, second)}, 1);
  out.sin = at::cat({at(all.sin, first), at(all.sin, second)}, 1);
  out.by_token = true;
  return out;
}

}  // namespace temper::models
