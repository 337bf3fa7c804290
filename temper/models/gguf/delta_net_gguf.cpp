// Models with gated delta nets as llama.cpp's architectures read them.
#include <ATen/ATen.h>

#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/models/families/qwen/delta_net.h"
#include "temper/models/gguf/gguf_config.h"
#include "temper/ops/pointwise.h"

namespace temper::models {
namespace {

constexpr GgufName kDeltaNetGgufNames[] = {
    {"linear_attn.in_proj_ba", "ssm_ba"},
    {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
    {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
};

// Rows of each value head, or one number of it: the value heads of a key head follow each other, in
// `tiled` order the first of each key head, then the second of each.
struct GgufValueHeads {
  int64_t key_heads, share;  // value heads of a key head
  bool tiled;

  at::Tensor rows(const at::Tensor& value) const {
    if (!tiled || share == 1) return value;
    std::vector<int64_t> split = value.sizes().vec();
    split[0] /= key_heads * share;
    split.insert(split.begin(), {key_heads, share});
    return value.reshape(split).transpose(0, 1).reshape(value.sizes());
  }
  at::Tensor columns(const at::Tensor& value) const { return rows(value.t()).t(); }
  // Rows of queries and keys come first, `before` of them.
  at::Tensor last_rows(const at::Tensor& value, int64_t before) const {
    const int64_t after = value.size(0) - before;
    return at::cat({value.narrow(0, 0, before), rows(value.narrow(0, before, after))});
  }
};

// Of rows that lie by key head, a query, a key, values and gates each: all queries, then all keys,
// then all values; or all gates.
at::Tensor joined_qkv(const at::Tensor& value, const ops::DeltaRuleSpec& rule) {
  const int64_t columns = value.size(1);
  const at::Tensor heads = value.reshape({rule.key_heads, -1, columns});
  const int64_t values = rule.value_heads / rule.key_heads * rule.value_dim;
  const auto take = [&](int64_t from, int64_t count) {
    return heads.narrow(1, from, count).reshape({-1, columns});
  };
  return at::cat(
      {take(0, rule.key_dim), take(rule.key_dim, rule.key_dim), take(2 * rule.key_dim, values)});
}
at::Tensor joined_gates(const at::Tensor& value, const ops::DeltaRuleSpec& rule) {
  const at::Tensor heads = value.reshape({rule.key_heads, -1, value.size(1)});
  const int64_t gates = rule.value_heads / rule.key_heads * rule.value_dim;
  return heads.narrow(1, heads.size(1) - gates, gates).reshape({-1, value.size(1)});
}

void add_delta_net_parts(const ops::DeltaRuleSpec& rule, bool joined, GgufForm& form) {
  const GgufValueHeads heads{rule.key_heads, rule.value_heads / rule.key_heads, !joined};
  const int64_t before = 2 * rule.key_heads * rule.key_dim;
  const auto add = [&](const char* own, const char* gguf, auto arrange, bool elements = false) {
    form.parts.push_back({str("linear_attn.", own), gguf, arrange, elements});
  };
  const auto rows = [heads](const at::Tensor& v) { return heads.rows(v); };
  add("A_log", "ssm_a", rows);
  form.parts.back().apply = [](const at::Tensor& v) { return ops::exp(v).neg(); };
  form.parts.back().undo = [](const at::Tensor& v) { return ops::log(v.neg()); };
  add("dt_bias", "ssm_dt.bias", rows);
  add("conv1d.weight", "ssm_conv1d.weight",
      [heads, before](const at::Tensor& v) { return heads.last_rows(v.squeeze(1), before); });
  add("norm.weight", "ssm_norm.weight", nullptr);  // not 1 + weight
  add(
      "out_proj.weight", "ssm_out.weight",
      [heads](const at::Tensor& v) { return heads.columns(v); }, /*elements=*/true);
  if (joined) {
    add("in_proj_qkvz.weight", "attn_qkv.weight",
        [rule](const at::Tensor& v) { return joined_qkv(v, rule); });
    add("in_proj_qkvz.weight", "attn_gate.weight",
        [rule](const at::Tensor& v) { return joined_gates(v, rule); });
    return;
  }
  add("in_proj_qkv.weight", "attn_qkv.weight",
      [heads, before](const at::Tensor& v) { return heads.last_rows(v, before); });
  add("in_proj_z.weight", "attn_gate.weight", rows);
  add("in_proj_a.weight", "ssm_alpha.weight", rows);
  add("in_proj_b.weight", "ssm_beta.weight", rows);
}

void add_delta_net_layers(const HfConfig& source, const DecoderConfig& c, GgufForm& form) {
  const int64_t interval = source.integer("full_attention_interval", 4);
  bool usual = true;
  for (size_t i = 0; i < c.has_state.size(); ++i)
    usual = usual && c.has_state[i] == ((static_cast<int64_t>(i) + 1) % interval != 0);
  form.set_number("full_attention_interval", interval);
  if (!usual) form.set("attention.recurrent_layers", GgufArray(c.has_state));
}

void add_delta_net(const HfConfig& source, const DecoderConfig& c, bool joined, GgufForm& form) {
  const ops::DeltaRuleSpec rule = read_delta_rule(source);
  if (rule.value_dim != rule.key_dim)
    form.refuse(source, "linear_value_head_dim",
                str(rule.value_dim, " features, and keys have ", rule.key_dim));
  const int64_t taps = source.integer("linear_conv_kernel_dim", 4, ops::most_convolution_taps());
  if (taps < 2) form.refuse(source, "linear_conv_kernel_dim", "a convolution of one token");
  form.set_number("ssm.conv_kernel", taps);
  form.set_number("ssm.state_size", rule.key_dim);
  form.set_number("ssm.group_count", rule.key_heads);
  form.set_number("ssm.time_step_rank", rule.value_heads);
  form.set_number("ssm.inner_size", rule.value_heads * rule.value_dim);
  add_delta_net_layers(source, c, form);
  add_delta_net_parts(rule, joined, form);
  form.parts.push_back({"mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight",
                        [](const at::Tensor& v) { return v.squeeze(0); }});
  if (c.attention.norm_eps != 1e-6)
    form.notes.push_back(
        "llama.cpp divides a delta net's queries and keys by norms with `rms_norm_eps`, not with "
        "1e-6: its log-probabilities differ a little");
}

void add_joined_delta_net(const HfConfig& source, const DecoderConfig& c, GgufForm& form) {
  add_delta_net(source, c, /*joined=*/true, form);
}

// Positions of text are the same in all three sections (time, height, width) that a rotated pair
// may belong to; a pair in none of them would not rotate.
void add_apart_delta_net(const HfConfig& source, const DecoderConfig& c, GgufForm& form) {
  add_delta_net(source, c, /*joined=*/false, form);
  const nn::Rotary rotary(c.rotary, c.attention.head_dim);
  const auto pairs = static_cast<int32_t>(rotary.inverse_frequency().size());
  form.set("rope.dimension_sections",
           GgufArray(std::vector<int32_t>{(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3, 0}));
}

void read_delta_net_gguf(const GgufSource& source, Json& config) {
  const auto layers = config["num_hidden_layers"].get<int64_t>();
  config["linear_conv_kernel_dim"] = source.number("ssm.conv_kernel");
  config["linear_key_head_dim"] = config["linear_value_head_dim"] = source.number("ssm.state_size");
  config["linear_num_key_heads"] = source.number("ssm.group_count");
  config["linear_num_value_heads"] = source.number("ssm.time_step_rank");
  const int64_t interval = source.number("full_attention_interval", 4);
  config["full_attention_interval"] = interval;
  const std::vector<double> listed = source.by_layer("attention.recurrent_layers", layers);
  Json types = Json::array();
  for (int64_t i = 0; i < layers; ++i) {
    const bool state = listed.empty() ? interval == 0 || (i + 1) % interval != 0
                                      : listed[static_cast<size_t>(i)] != 0;
    types.push_back(state ? "linear_attention" : "full_attention");
  }
  config["layer_types"] = std::move(types);
  if (source.number("expert_count", 0) == 0) return;
  read_gguf_experts(source, "num_experts", "moe_intermediate_size", config);
  config["shared_expert_intermediate_size"] = source.number("expert_shared_feed_forward_length");
  config["norm_topk_prob"] = true;
}

}  // namespace

GgufArchitecture delta_net_gguf(const char* name, bool joined) {
  return {.name = name,
          .post_norm = true,
          .names = kDeltaNetGgufNames,
          .add = joined ? &add_joined_delta_net : &add_apart_delta_net,
          .read = &read_delta_net_gguf};
}

}  // namespace temper::models
