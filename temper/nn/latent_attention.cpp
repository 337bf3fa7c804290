#include "temper/nn/latent_attention.h"

#include <ATen/ATen.h>

#include "temper/ops/backend.h"
#include "temper/ops/layers/cache_rounding.h"
#include "temper/ops/layers/dora.h"
#include "temper/ops/layers/grouped_linear.h"

namespace temper::nn {
namespace {

// Parts of each head [N, heads, ...], one behind the other, with zeros up to head_dim.
at::Tensor join_heads(std::vector<at::Tensor> parts, int64_t head_dim) {
  const at::Tensor& first = parts[0];
  const int64_t rows = first.size(0), heads = first.size(1);
  int64_t missing = head_dim;
  for (const at::Tensor& part : parts) missing -= part.size(2);
  if (missing > 0) parts.push_back(at::zeros({rows, heads, missing}, first.options()));
  return at::cat(parts, 2).view({rows, heads * head_dim});
}

// Of each head's matrix of `weights` [heads, out, in].
std::vector<ops::LinearOperand> operands(const at::Tensor& weights, bool packed) {
  std::vector<ops::LinearOperand> each;
  for (const at::Tensor& matrix : weights.contiguous().unbind(0)) {
    ops::Weight weight = matrix;
    if (packed) weight.panels = ops::pack(weight);
    // Products read the panels alone: of the values only the shape is kept.
    if (weight.panels.defined()) weight.values = matrix.new_empty({1}).expand(matrix.sizes());
    each.push_back({std::move(weight), {}});
  }
  return each;
}

// x [N, heads, in] by the matrix of its head: [N, heads * out].
at::Tensor multiply_heads(const at::Tensor& x, const std::vector<ops::LinearOperand>& weights) {
  const int64_t rows = x.size(0), heads = x.size(1), out = weights[0].weight.out();
  std::vector<int64_t> offsets;
  for (int64_t h = 0; h <= heads; ++h) offsets.push_back(h * rows);
  const at::Tensor by_head = x.transpose(0, 1).contiguous().view({heads * rows, x.size(2)});
  return ops::grouped_linear(ops::GroupedInput::plain(by_head), offsets, {weights})[0]
      .view({heads, rows, out})
      .transpose(0, 1)
      .reshape({rows, heads * out});
}

}  // namespace

LatentAttention::LatentAttention(Module& parent, std::string name, const AttentionConfig& c,
                                 const LatentConfig& l, int64_t layer,
                                 std::shared_ptr<Rotary> rotary)
    : Attention(parent, std::move(name), c, layer, std::move(rotary), l.value_dim),
      kv_a_proj_with_mqa(*this, "kv_a_proj_with_mqa", c.hidden_size, l.kv_rank + l.rotated_dim,
                         c.qkv_bias, c.init_std),
      kv_a_layernorm(*this, "kv_a_layernorm", l.kv_rank, l.norm_eps),
      kv_b_proj(*this, "kv_b_proj", l.kv_rank, c.num_heads * (l.plain_dim + l.value_dim), false,
                c.init_std, LinearSplit::kColumns),
      latent_(l) {
  const int64_t outputs = c.num_heads * l.query_dim();
  if (l.q_rank == 0) {
    q_proj.emplace(*this, "q_proj", c.hidden_size, outputs, false, c.init_std,
                   LinearSplit::kColumns);
    return;
  }
  q_a_proj.emplace(*this, "q_a_proj", c.hidden_size, l.q_rank, c.qkv_bias, c.init_std);
  q_a_layernorm.emplace(*this, "q_a_layernorm", l.q_rank, l.norm_eps);
  q_b_proj.emplace(*this, "q_b_proj", l.q_rank, outputs, false, c.init_std, LinearSplit::kColumns);
}

void LatentAttention::split(const std::shared_ptr<dist::Group>& group, const std::string& where) {
  Attention::split(group, where);
  group_ = group;
}

ops::AttentionSpec LatentAttention::spec() const {
  ops::AttentionSpec spec = Attention::spec();
  spec.num_kv_heads = 1;
  spec.head_dim = latent_.cached_dim();
  spec.values_in_keys = true;
  return spec;
}

ops::AttentionSpec LatentAttention::spec_in(const Context& context) {
  return expands(context) ? Attention::spec() : spec();
}

// Keys and values of latents that are rounded for a cache may be rounded, too, where arithmetic is
// not exact: flash kernels round all of their inputs.
bool LatentAttention::expands(const Context& context) {
  const Lora* lora = context.adapter_rows.empty() ? kv_b_proj.adapter(context.adapter) : nullptr;
  if (lora && lora->drops(context)) return true;
  const ops::AttentionSpec by_head = Attention::spec();
  const bool may_round = by_head.cache_dtype == ops::CacheDtype::kFloat32 ||
                         by_head.arithmetic != ops::Arithmetic::kExact;
  return !context.cache && may_round &&
         !ops::backend_of(kv_b_proj.weight.device()).batch_invariant();
}

std::vector<at::Tensor> LatentAttention::project_heads(const ops::LinearInput& x,
                                                       const Context& context, bool values,
                                                       at::Tensor& /*gate*/) {
  std::vector<Linear*> from_x{&kv_a_proj_with_mqa};
  if (q_a_proj) from_x.push_back(&*q_a_proj);
  const std::vector<at::Tensor> projected = project(x, from_x, context);
  const at::Tensor queries = q_proj
                                 ? q_proj->forward(x, context)
                                 : q_b_proj->forward(q_a_layernorm->input(projected[1]), context);
  const LatentConfig& l = latent_;
  const Latents latents{projected[0].narrow(1, 0, l.kv_rank).contiguous(),
                        projected[0].narrow(1, l.kv_rank, l.rotated_dim).contiguous()};
  const at::Tensor q = queries.view({queries.size(0), config().num_heads, l.query_dim()});
  return expands(context) ? expand(q, latents, context, values) : absorb(q, latents, context);
}

std::vector<at::Tensor> LatentAttention::expand(const at::Tensor& q, const Latents& latents,
                                                const Context& context, bool values) {
  const LatentConfig& l = latent_;
  const int64_t rows = q.size(0), heads = config().num_heads, dim = config().head_dim;
  ops::LinearInput shared = ops::LinearInput::plain(latents.rotated);
  shared.ranks = group_;  // whose heads all read it
  const ops::CacheDtype dtype = Attention::spec().cache_dtype;
  ops::LinearInput normed = kv_a_layernorm.input(latents.compressed);
  if (dtype != ops::CacheDtype::kFloat32)
    normed = ops::LinearInput::plain(ops::round_to_cache(dtype, ops::materialize(normed)));
  const at::Tensor kv = kv_b_proj.forward(normed, context)
                            .view({rows, heads, l.plain_dim + l.value_dim}),
                   rotated = ops::materialize(shared).unsqueeze(1);
  std::vector<at::Tensor> out{
      join_heads({q.narrow(2, l.plain_dim, l.rotated_dim), q.narrow(2, 0, l.plain_dim)}, dim),
      join_heads({rotated.expand({rows, heads, l.rotated_dim}), kv.narrow(2, 0, l.plain_dim)},
                 dim)};
  if (values) out.push_back(join_heads({kv.narrow(2, l.plain_dim, l.value_dim)}, dim));
  return out;
}

std::vector<at::Tensor> LatentAttention::absorb(const at::Tensor& q, const Latents& latents,
                                                const Context& context) {
  const LatentConfig& l = latent_;
  const int64_t rows = q.size(0), heads = config().num_heads;
  ops::LinearInput shared = ops::LinearInput::plain(
      at::cat({latents.rotated, kv_a_layernorm.forward(latents.compressed)}, 1));
  shared.ranks = group_;
  const at::Tensor absorbed =
      through_heads(q.narrow(2, 0, l.plain_dim), context, true).view({rows, heads, l.kv_rank});
  return {join_heads({q.narrow(2, l.plain_dim, l.rotated_dim), absorbed}, l.cached_dim()),
          ops::materialize(shared)};
}

at::Tensor LatentAttention::read_values(const at::Tensor& attended, const Context& context) {
  const int64_t rows = attended.size(0), heads = config().num_heads;
  const at::Tensor by_head = attended.view({rows, heads, attended.size(1) / heads});
  if (!expands(context))
    return through_heads(by_head.narrow(2, latent_.rotated_dim, latent_.kv_rank), context, false);
  if (latent_.value_dim == config().head_dim) return attended;
  return by_head.narrow(2, 0, latent_.value_dim).reshape({rows, heads * latent_.value_dim});
}

at::Tensor LatentAttention::through_heads(const at::Tensor& x, const Context& context, bool keys) {
  const auto of = [&](const at::Tensor& rows, int adapter) {
    const std::shared_ptr<const Absorbed> parts = absorbed(adapter);
    return keys ? through_keys(rows, parts->keys) : through_values(rows, parts->values);
  };
  if (context.adapter_rows.empty()) return of(x, context.adapter);
  std::vector<at::Tensor> each;
  for (const AdapterRows& rows : context.adapter_rows)
    each.push_back(of(x.narrow(0, rows.begin, rows.end - rows.begin), rows.adapter));
  return at::cat(each);
}

at::Tensor LatentAttention::through_keys(const at::Tensor& x, const OfHeads& part) const {
  if (!part.magnitude.defined()) return multiply_heads(x, part.weights);
  const at::Tensor scaled = ops::scale_features(x.reshape({x.size(0), x.size(1) * x.size(2)}),
                                                part.magnitude, part.norm, {});
  return multiply_heads(scaled.view(x.sizes()), part.weights);
}

at::Tensor LatentAttention::through_values(const at::Tensor& x, const OfHeads& part) const {
  const at::Tensor y = multiply_heads(x, part.weights);
  return part.magnitude.defined() ? ops::scale_features(y, part.magnitude, part.norm, {}) : y;
}

// Any change of the model may be one of the weights or of what an adapter's number means. Under
// FSDP the weights are gathered for this pass alone.
std::shared_ptr<const LatentAttention::Absorbed> LatentAttention::absorbed(int adapter) {
  const std::lock_guard lock(mutex_);
  const uint64_t now = changes();
  if (changes_ != now || !keeps_panels()) absorbed_.clear();
  changes_ = now;
  const Placement* placement = kv_b_proj.weight.placement();
  const bool keep = keeps_panels() && !(placement && placement->fsdp);
  const auto known = absorbed_.find(adapter);
  if (known != absorbed_.end()) return known->second;
  auto made = std::make_shared<const Absorbed>(make_absorbed(kv_b_proj.adapter(adapter), keep));
  if (keep) absorbed_[adapter] = made;
  return made;
}

LatentAttention::Absorbed LatentAttention::make_absorbed(Lora* lora, bool packed) const {
  at::Tensor weight = ops::weight_values(kv_b_proj.weight.stored());
  if (lora) {
    const ops::Weight a = lora->lora_A.weight.value().t().contiguous();
    const at::Tensor delta =
        ops::linear(ops::LinearInput::plain(lora->lora_B.weight.value()), {{a, {}}})[0];
    weight = ops::add_scaled(weight, delta, lora->scale);
  }
  const int64_t heads = config().num_heads, plain = latent_.plain_dim, value = latent_.value_dim;
  const at::Tensor by_head = weight.view({heads, plain + value, latent_.kv_rank});
  Absorbed parts{{operands(by_head.narrow(1, 0, plain).transpose(1, 2), packed), {}, {}},
                 {operands(by_head.narrow(1, plain, value), packed), {}, {}}};
  if (!lora || !lora->lora_magnitude_vector) return parts;
  const at::Tensor norms = lora->row_norms(kv_b_proj.weight);
  const auto features = [&](const at::Tensor& of, int64_t first, int64_t count) {
    return of.view({heads, plain + value}).narrow(1, first, count).reshape({heads * count});
  };
  const at::Tensor magnitude = lora->lora_magnitude_vector->weight.value();
  parts.keys.magnitude = features(magnitude, 0, plain);
  parts.keys.norm = features(norms, 0, plain);
  parts.values.magnitude = features(magnitude, plain, value);
  parts.values.norm = features(norms, plain, value);
  return parts;
}

}  // namespace temper::nn
