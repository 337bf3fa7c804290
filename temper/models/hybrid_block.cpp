#include "temper/models/hybrid_block.h"

#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/nn/weights/read_rows.h"

namespace temper::models {
namespace {

const HybridConfig& hybrid(const DecoderConfig& c) {
  return static_cast<const HybridConfig&>(*c.own);
}

}  // namespace

std::vector<bool> state_layers(const HfConfig& config, int64_t layers, const char* state_type,
                               const std::function<bool(int64_t layer)>& fallback) {
  std::vector<bool> has_state;
  if (!config.has("layer_types")) {
    for (int64_t i = 0; i < layers; ++i) has_state.push_back(fallback(i));
    return has_state;
  }
  const Json& types = config.json().at("layer_types");
  if (!types.is_array() || static_cast<int64_t>(types.size()) != layers)
    config.fail("layer_types", str("expected a list of ", layers, " names, one for each layer"));
  for (const Json& type : types) {
    if (type != state_type && type != "full_attention")
      config.fail("layer_types",
                  str("found ", dump_json(type), ", expected ", state_type, " or full_attention"));
    has_state.push_back(type == state_type);
  }
  return has_state;
}

HybridBlock::HybridBlock(nn::Module& parent, std::string name, const DecoderConfig& c,
                         int64_t layer, std::shared_ptr<nn::Rotary> rotary)
    : Module(parent, std::move(name)),
      first_norm(*this, hybrid(c).first_norm, c.hidden_size, c.attention.norm_eps,
                 c.attention.norm_one_plus),
      second_norm(*this, hybrid(c).second_norm, c.hidden_size, c.attention.norm_eps,
                  c.attention.norm_one_plus) {
  const auto i = static_cast<size_t>(layer);
  if (hybrid(c).has_state.at(i))
    state_layer = hybrid(c).make(*this, layer);
  else
    self_attn.emplace(*this, "self_attn", c.attention_of(layer), layer, std::move(rotary));
  if (c.sparse && c.sparse->layers.at(i))
    sparse.emplace(*this, c.sparse->module, c, layer);
  else
    mlp.emplace(*this, hybrid(c).mlp, c.hidden_size, c.intermediate_size, c.mlp_bias, c.activation,
                c.initializer_range, false, hybrid(c).mlp_names);
}

at::Tensor HybridBlock::forward(const at::Tensor& x, const nn::Context& context) {
  const nn::ReadRows read(context);
  const ops::LinearInput in = first_norm.input(x);
  const at::Tensor mixed =
      self_attn ? self_attn->forward(in, context) : state_layer->forward(in, context);
  const at::Tensor h = ops::add_scaled(read.select(x), mixed);
  const ops::LinearInput fed_in = second_norm.input(h);
  const at::Tensor fed =
      sparse ? sparse->forward(fed_in, read.context()) : mlp->forward(fed_in, read.context());
  return read.restore(ops::add_scaled(h, fed), x.size(0));
}

std::vector<int64_t> HybridBlock::state_sizes() const {
  return state_layer ? state_layer->state_sizes() : std::vector<int64_t>();
}

nn::Attention::Heads HybridBlock::attention_heads(int64_t layer, const at::Tensor& x,
                                                  const nn::Context& context) {
  check<ConfigError>(self_attn.has_value(), "layer ", layer,
                     " carries a state in place of attention, whose maps distillation could "
                     "compare; expected a layer with attention");
  return self_attn->heads(first_norm.input(x), context);
}

}  // namespace temper::models
