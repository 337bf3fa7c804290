#include "temper/models/sparse_mlp.h"

#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/nn/run_again.h"

namespace temper::models {

ops::RouterSpec read_router(const HfConfig& c, int64_t experts, int64_t chosen, const char* key) {
  if (!key)
    key = c.has("num_local_experts")  ? "num_local_experts"
          : c.has("n_routed_experts") ? "n_routed_experts"
                                      : "num_experts";
  ops::RouterSpec spec{.experts = c.integer(key, experts, kMostExperts),
                       .chosen = c.integer("num_experts_per_tok", chosen, kMostExperts)};
  if (spec.chosen > spec.experts)
    c.fail("num_experts_per_tok", temper::str(spec.chosen, " of ", spec.experts, " experts"));
  return spec;
}

void read_sigmoid_router(const HfConfig& c, ops::RouterSpec& spec) {
  spec.score = ops::RouterScore::kSigmoid;
  spec.groups = c.integer("n_group", spec.groups, kMostExperts);
  spec.chosen_groups = c.integer("topk_group", spec.chosen_groups, kMostExperts);
  spec.normalize = c.boolean("norm_topk_prob", true);
  spec.scale = c.number("routed_scaling_factor", spec.scale);
  const int64_t size = spec.experts / spec.groups;
  if (spec.experts % spec.groups != 0 || (spec.groups > 1 && size < 2))
    c.fail("n_group", temper::str(spec.groups, " groups of ", spec.experts, " experts"));
  if (spec.chosen_groups > spec.groups || spec.chosen_groups * size < spec.chosen)
    c.fail("topk_group", temper::str(spec.chosen_groups, " of ", spec.groups, " groups of ", size,
                                     " experts, for ", spec.chosen, " experts of a token"));
}

void dense_first(const HfConfig& c, int64_t usual, int64_t layers, SparseConfig& sparse) {
  const double dense = c.number("first_k_dense_replace", static_cast<double>(usual));
  for (int64_t i = 0; i < layers; ++i) sparse.layers.push_back(static_cast<double>(i) >= dense);
}

void drop_later_layers(TensorMap& tensors, int64_t layers) {
  const std::string prefix = "model.layers.";
  std::erase_if(tensors, [&](const auto& tensor) {
    const std::string& name = tensor.first;
    if (!name.starts_with(prefix)) return false;
    const size_t dot = name.find('.', prefix.size());
    const std::string digits = name.substr(prefix.size(), dot - prefix.size());
    return !digits.empty() && digits.size() < 9 &&
           digits.find_first_not_of("0123456789") == std::string::npos &&
           std::stol(digits) >= layers;
  });
}

void set_sparse(DecoderConfig& c, SparseConfig sparse) {
  sparse.layers.resize(static_cast<size_t>(c.num_hidden_layers), true);
  c.experts = sparse.router.experts;
  c.experts_per_token = sparse.router.chosen;
  c.sparse = std::make_shared<const SparseConfig>(std::move(sparse));
}

std::vector<bool> sparse_layers(const HfConfig& config, int64_t layers) {
  const int64_t step = config.integer("decoder_sparse_step", 1);
  std::vector<bool> sparse;
  for (int64_t i = 0; i < layers; ++i) sparse.push_back((i + 1) % step == 0);
  if (!config.has("mlp_only_layers")) return sparse;
  const Json& only = config.json().at("mlp_only_layers");
  if (!only.is_array()) config.fail("mlp_only_layers", "expected a list of layers");
  for (const Json& layer : only) {
    if (!layer.is_number_integer()) config.fail("mlp_only_layers", "expected numbers of layers");
    const int64_t i = layer.get<int64_t>();
    if (i >= 0 && i < layers) sparse[static_cast<size_t>(i)] = false;
  }
  return sparse;
}

namespace {
ops::GatedUnit unit_of(const DecoderConfig& c) {
  ops::GatedUnit unit = c.sparse->unit;
  unit.activation = c.activation;
  return unit;
}
}  // namespace

SparseMlp::SparseMlp(nn::Module& parent, std::string name, const DecoderConfig& c, int64_t layer)
    : Module(parent, std::move(name)),
      router(*this, c.sparse->gate, c.hidden_size, c.sparse->router, c.initializer_range,
             c.sparse->correction, c.sparse->router_bias),
      experts(*this, "experts",
              {.count = c.sparse->router.experts,
               .hidden = c.hidden_size,
               .width = c.sparse->width,
               .unit = unit_of(c),
               .bias = c.sparse->expert_bias,
               .init_std = c.initializer_range}),
      layer_(layer) {
  set_role(nn::Role::kMlp);
  if (c.sparse->shared_width > 0)
    shared_experts.emplace(*this, c.sparse->shared, c.hidden_size, c.sparse->shared_width, false,
                           c.activation, c.initializer_range);
  if (c.sparse->shared_gate)
    shared_gate.emplace(*this, "shared_expert_gate", c.hidden_size, 1, false, c.initializer_range);
}

bool SparseMlp::treats_rows_alone(const nn::Context& context) {
  if (context.routers && context.routers->loss) return false;
  for (const nn::Parameter* p : nn::trainable_parameters({&experts}, context.adapters()))
    if (p->arithmetic() == ops::Arithmetic::kAmx) return false;
  return true;
}

at::Tensor SparseMlp::forward(const ops::LinearInput& x, const nn::Context& context) {
  const at::Tensor h = ops::materialize(x), logits = router.logits(h, context);
  const ops::Routing routing = router.route(logits);
  const ops::ExpertRows rows = ops::rows_by_expert(routing.expert, router.spec.experts);
  at::Tensor y = experts.forward(h, routing.weight, rows, context);
  if (context.routers) y = context.routers->see(layer_, logits, rows, y);
  if (!shared_experts) return y;
  at::Tensor shared = shared_experts->forward(ops::LinearInput::plain(h), context);
  if (shared_gate) {
    const at::Tensor gate = shared_gate->forward(h, context).expand_as(shared).contiguous();
    shared = ops::materialize(ops::LinearInput::gated(gate, shared, ops::Activation::kSigmoid));
  }
  return ops::add_scaled(y, shared);
}

}  // namespace temper::models
