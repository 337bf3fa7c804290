#include "temper/nn/latent_attention.h"

#include <ATen/ATen.h>

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

std::vector<at::Tensor> LatentAttention::project_heads(const ops::LinearInput& x,
                                                       const Context& context, bool values,
                                                       at::Tensor& /*gate*/) {
  const LatentConfig& l = latent_;
  std::vector<Linear*> from_x{&kv_a_proj_with_mqa};
  if (q_a_proj) from_x.push_back(&*q_a_proj);
  const std::vector<at::Tensor> latents = project(x, from_x, context);
  const at::Tensor queries = q_proj ? q_proj->forward(x, context)
                                    : q_b_proj->forward(q_a_layernorm->input(latents[1]), context);
  const at::Tensor compressed = latents[0].narrow(1, 0, l.kv_rank).contiguous();
  ops::LinearInput shared =
      ops::LinearInput::plain(latents[0].narrow(1, l.kv_rank, l.rotated_dim).contiguous());
  shared.ranks = group_;  // whose heads all read it
  const at::Tensor keys_values = kv_b_proj.forward(kv_a_layernorm.input(compressed), context);

  const int64_t rows = queries.size(0), heads = config().num_heads, dim = config().head_dim;
  const auto by_head = [&](const at::Tensor& y) { return y.view({rows, heads, -1}); };
  const at::Tensor q = by_head(queries), kv = by_head(keys_values),
                   rotated = ops::materialize(shared).unsqueeze(1);
  std::vector<at::Tensor> out{
      join_heads({q.narrow(2, l.plain_dim, l.rotated_dim), q.narrow(2, 0, l.plain_dim)}, dim),
      join_heads({rotated.expand({rows, heads, l.rotated_dim}), kv.narrow(2, 0, l.plain_dim)},
                 dim)};
  if (values) out.push_back(join_heads({kv.narrow(2, l.plain_dim, l.value_dim)}, dim));
  return out;
}

at::Tensor LatentAttention::read_values(const at::Tensor& attended) const {
  const int64_t rows = attended.size(0), heads = config().num_heads, dim = config().head_dim;
  if (latent_.value_dim == dim) return attended;
  return attended.view({rows, heads, dim})
      .narrow(2, 0, latent_.value_dim)
      .reshape({rows, heads * latent_.value_dim});
}

}  // namespace temper::nn
