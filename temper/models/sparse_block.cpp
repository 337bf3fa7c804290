#include "temper/models/sparse_block.h"

#include "temper/base/error.h"
#include "temper/nn/read_rows.h"

namespace temper::models {

ops::RouterSpec read_router(const HfConfig& c, int64_t experts, int64_t chosen) {
  const char* key = c.has("num_local_experts") ? "num_local_experts" : "num_experts";
  ops::RouterSpec spec{.experts = c.integer(key, experts, kMostExperts),
                       .chosen = c.integer("num_experts_per_tok", chosen, kMostExperts)};
  if (spec.chosen > spec.experts)
    c.fail("num_experts_per_tok", temper::str(spec.chosen, " of ", spec.experts, " experts"));
  return spec;
}

void set_sparse(DecoderConfig& c, SparseConfig sparse) {
  sparse.layers.resize(static_cast<size_t>(c.num_hidden_layers), true);
  c.experts = sparse.router.experts;
  c.experts_per_token = sparse.router.chosen;
  c.sparse = std::make_shared<const SparseConfig>(std::move(sparse));
}

SparseMlp::SparseMlp(nn::Module& parent, std::string name, const DecoderConfig& c, int64_t layer)
    : Module(parent, std::move(name)),
      router(*this, c.sparse->gate, c.hidden_size, c.sparse->router, c.initializer_range),
      experts(*this, "experts",
              {.count = c.sparse->router.experts,
               .hidden = c.hidden_size,
               .width = c.sparse->width,
               .activation = c.activation,
               .init_std = c.initializer_range}),
      layer_(layer) {}

at::Tensor SparseMlp::forward(const ops::LinearInput& x, const nn::Context& context) {
  const at::Tensor h = ops::materialize(x), logits = router.logits(h);
  const ops::Routing routing = router.route(logits);
  const ops::ExpertRows rows = ops::rows_by_expert(routing.expert, router.spec.experts);
  const at::Tensor y = experts.forward(h, routing.weight, rows, context);
  return context.routers ? context.routers->see(layer_, logits, rows, y) : y;
}

SparseBlock::SparseBlock(nn::Module& parent, std::string name, const DecoderConfig& c,
                         int64_t layer, std::shared_ptr<nn::Rotary> rotary)
    : Module(parent, std::move(name)),
      self_attn(*this, "self_attn", c.attention_of(layer), layer, std::move(rotary)),
      input_layernorm(*this, "input_layernorm", c.hidden_size, c.attention.norm_eps,
                      c.attention.norm_one_plus),
      post_attention_layernorm(*this, "post_attention_layernorm", c.hidden_size,
                               c.attention.norm_eps, c.attention.norm_one_plus) {
  if (c.sparse->layers.at(static_cast<size_t>(layer)))
    sparse.emplace(*this, c.sparse->module, c, layer);
  else
    mlp.emplace(*this, "mlp", c.hidden_size, c.intermediate_size, c.mlp_bias, c.activation,
                c.initializer_range);
}

at::Tensor SparseBlock::forward(const at::Tensor& x, const nn::Context& context) {
  const nn::ReadRows read(context);
  const at::Tensor attended = self_attn.forward(input_layernorm.input(x), context);
  const at::Tensor h = ops::add_scaled(read.select(x), attended);
  const ops::LinearInput in = post_attention_layernorm.input(h);
  const at::Tensor fed =
      sparse ? sparse->forward(in, read.context()) : mlp->forward(in, read.context());
  return read.restore(ops::add_scaled(h, fed), x.size(0));
}

namespace {

constexpr ShardRule kSparseShards[] = {
    {"*.embed_tokens.weight", Split::kVocabulary},
    {"lm_head.weight", Split::kVocabulary},
    {"*.q_proj.weight", Split::kColumns},
    {"*.k_proj.weight", Split::kColumns},
    {"*.v_proj.weight", Split::kColumns},
    {"*.o_proj.weight", Split::kRows},
    {"*.mlp.gate_proj.weight", Split::kColumns},
    {"*.mlp.up_proj.weight", Split::kColumns},
    {"*.mlp.down_proj.weight", Split::kRows},
    {"*.q_proj.bias", Split::kColumns},
    {"*.k_proj.bias", Split::kColumns},
    {"*.v_proj.bias", Split::kColumns},
};

}  // namespace

std::span<const ShardRule> sparse_shards() { return kSparseShards; }

}  // namespace temper::models
