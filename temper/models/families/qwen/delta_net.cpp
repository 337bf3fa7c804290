#include "temper/models/families/qwen/delta_net.h"

#include "temper/base/error.h"
#include "temper/models/files/expert_tensors.h"

namespace temper::models {
namespace {

// Far more than any model has; what a damaged config asks for would take all memory.
constexpr int64_t kMostHeads = 4096, kMostHeadDim = 4096;

}  // namespace

ops::DeltaRuleSpec read_delta_rule(const HfConfig& config) {
  const ops::DeltaRuleSpec rule{
      .key_heads = config.integer("linear_num_key_heads", 16, kMostHeads),
      .value_heads = config.integer("linear_num_value_heads", 32, kMostHeads),
      .key_dim = config.integer("linear_key_head_dim", 128, kMostHeadDim),
      .value_dim = config.integer("linear_value_head_dim", 128, kMostHeadDim)};
  if (rule.value_heads % rule.key_heads != 0)
    config.fail("linear_num_value_heads",
                str(rule.value_heads, " heads are not a multiple of ", rule.key_heads));
  return rule;
}

void set_delta_net(const HfConfig& config, DecoderConfig& c, bool joined) {
  if (c.activation != ops::Activation::kSilu)
    config.fail("hidden_act", "is not supported; this family's is silu");
  c.attention.qkv_bias = c.attention.o_bias = config.boolean("attention_bias", false);
  c.attention.qk_norm = c.attention.norm_one_plus = c.attention.output_gate = true;
  c.rotary = config.rotary(10000, c.max_position_embeddings, "", 0.25);
  config.read_sections(c.rotary, {11, 11, 10}, /*interleaved=*/true);
  const int64_t interval = config.integer("full_attention_interval", 4);
  c.has_state = state_layers(config, c.num_hidden_layers, "linear_attention",
                             [interval](int64_t layer) { return (layer + 1) % interval != 0; });
  const nn::DeltaNetConfig net{
      .hidden_size = c.hidden_size,
      .taps = config.integer("linear_conv_kernel_dim", 4, ops::most_convolution_taps()),
      .rule = read_delta_rule(config),
      .norm_eps = c.attention.norm_eps,
      .init_std = c.initializer_range,
      .joined = joined};
  c.make_state = [net](nn::Module& block, int64_t layer) {
    return std::make_unique<nn::GatedDeltaNet>(block, "linear_attn", layer, net);
  };
}

void set_shared_experts(const HfConfig& config, DecoderConfig& c, SparseConfig sparse) {
  sparse.width = config.integer("moe_intermediate_size", 512);
  sparse.shared_width = config.integer("shared_expert_intermediate_size", 512);
  sparse.shared_gate = true;
  sparse.shared = "shared_expert";
  set_sparse(c, std::move(sparse));
}

void read_delta_net_experts(TensorMap& tensors, const HfConfig& config) {
  unwrap_and_drop_drafts(tensors, config);
  read_experts(tensors, {});
}
void write_delta_net_experts(NamedTensors& tensors) {
  write_experts(tensors, ExpertForm::kSingle, {});
}

void unwrap_and_drop_drafts(TensorMap& tensors, const HfConfig& config) {
  unwrap_language_model(tensors, config);
  std::erase_if(tensors, [](const auto& tensor) {
    return tensor.first.starts_with("mtp.") || tensor.first.starts_with("model.mtp.") ||
           tensor.first.starts_with("model.visual.");
  });
}

}  // namespace temper::models
