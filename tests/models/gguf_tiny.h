// What tests of GGUF files share: a tiny model of every family that llama.cpp has, and what is
// written of it.
#pragma once

#include <doctest/doctest.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "temper/models/decoder.h"
#include "temper/models/gguf/gguf.h"
#include "temper/models/init.h"
#include "tests/train/tiny.h"

namespace gguf_tiny {

using namespace temper;

// Those that llama.cpp has an architecture for.
inline std::vector<std::string> gguf_families() {
  std::vector<std::string> names;
  for (const auto& family : models::families().list())
    if (family.value.gguf) names.push_back(family.name);
  return names;
}

// Those whose tensors are not the ones that decoders have in common; they have tests of their own.
inline bool is_own(const std::string& family) {
  return std::set<std::string>{"lfm2",       "deepseek_v3",      "gemma4_text",
                               "qwen3_next", "qwen3_5_moe_text", "qwen3_5_text"}
      .contains(family);
}

inline Json delta_net() {
  return {{"linear_num_key_heads", 2},
          {"linear_num_value_heads", 4},
          {"linear_key_head_dim", 6},
          {"linear_value_head_dim", 6},
          {"shared_expert_intermediate_size", 20}};
}

// Keys of a family's own, or where llama.cpp's architecture asks for other values than config_of's.
inline Json particulars(const std::string& family) {
  static const std::map<std::string, Json> known = {
      {"mistral", {{"sliding_window", nullptr}}},
      {"mixtral", {{"sliding_window", nullptr}}},
      {"phi3", {{"sliding_window", nullptr}}},
      {"ministral3", {{"sliding_window", nullptr}}},
      {"exaone4", {{"sliding_window", nullptr}}},
      {"olmoe", {{"num_key_value_heads", 4}}},
      {"qwen3_moe", {{"norm_topk_prob", true}}},
      {"lfm2", {{"full_attn_idxs", {1, 4}}, {"block_auto_adjust_ff_dim", false}}},
      {"deepseek_v3",
       {{"num_key_value_heads", 4},
        {"q_lora_rank", 14},
        {"kv_lora_rank", 10},
        {"qk_nope_head_dim", 6},
        {"qk_rope_head_dim", 4},
        {"head_dim", 4},
        {"v_head_dim", 7},
        {"n_group", 1},
        {"topk_group", 1}}},
      {"qwen3_next", delta_net()},
      {"qwen3_5_text", delta_net()},
      {"qwen3_5_moe_text", delta_net()},
      {"gemma4_text",
       {{"global_head_dim", 16},
        {"hidden_size_per_layer_input", 0},
        {"vocab_size_per_layer_input", 61}}}};
  const auto found = known.find(family);
  Json own = found == known.end() ? Json::object() : found->second;
  own.update({{"num_local_experts", 3},
              {"num_experts", 3},
              {"num_experts_per_tok", 2},
              {"moe_intermediate_size", 24}});
  return own;
}

inline Json config_of(const std::string& family, const Json& changes = Json::object()) {
  Json config = {{"model_type", family},      {"vocab_size", 61},
                 {"hidden_size", 32},         {"intermediate_size", 40},
                 {"num_hidden_layers", 7},    {"num_attention_heads", 4},
                 {"num_key_value_heads", 2},  {"head_dim", 8},
                 {"sliding_window", 5},       {"max_position_embeddings", 128},
                 {"query_pre_attn_scalar", 8}};
  config.update(particulars(family));
  config.update(changes);
  return config;
}

inline models::HfConfig parsed(const Json& config) {
  return models::HfConfig::parse(config, "config");
}

inline models::GgufForm form_of(const std::string& family, const Json& changes = Json::object()) {
  return models::gguf_form(parsed(config_of(family, changes)));
}
inline std::string problem(const std::string& family, const Json& changes) {
  try {
    form_of(family, changes);
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "no error";
}

template <class T>
std::optional<T> key(const models::GgufForm& form, const std::string& name) {
  for (const auto& [full, value] : form.keys)
    if (full == form.architecture + "." + name) return std::get<T>(value);
  return std::nullopt;
}

inline std::unique_ptr<models::CausalLM> model_of(const Json& config) {
  auto model = models::init_model(parsed(config), 3);
  uint64_t n = 0;
  model->each_parameter([&](const std::string&, nn::Parameter& p) {  // no constants
    p.own();
    p.set_value(p.value().detach() +
                0.01 * at::arange(p.value().numel()).reshape(p.shape()).remainder(17 + ++n % 5));
  });
  return model;
}

inline std::map<std::string, at::Tensor> made(models::CausalLM& model, const models::GgufForm& form,
                                              at::ScalarType type = at::kFloat) {
  std::map<std::string, at::Tensor> out;
  for (const auto& [name, view] : models::gguf_tensors(model, form, type)) {
    const TensorView whole = view.make ? view.make() : view;
    CHECK(whole.dtype == view.dtype);
    CHECK(whole.shape == view.shape);
    out[name] = models::to_tensor(whole, at::kFloat).clone();
  }
  return out;
}

inline at::Tensor value_of(models::CausalLM& model, const std::string& name) {
  at::Tensor found;
  model.each_parameter([&](const std::string& own, nn::Parameter& p) {
    if (own == name) found = p.float_value().detach().clone();
  });
  REQUIRE_MESSAGE(found.defined(), name);
  return found;
}

// Names and shapes of the tensors that are written, in bfloat16 but for those that llama.cpp reads
// in float32 alone.
using Shapes = std::map<std::string, std::vector<int64_t>>;

inline Shapes shapes_of(const std::string& family, const Json& changes) {
  Shapes shapes;
  const auto model = model_of(config_of(family, changes));
  for (const auto& [name, view] :
       models::gguf_tensors(*model, form_of(family, changes), at::kBFloat16)) {
    shapes[name] = view.shape;
    const bool is_float32 = view.shape.size() < 2 || name.find("ffn_gate_inp") != name.npos ||
                            name.find("ssm_conv1d") != name.npos;
    CAPTURE(name);
    CHECK(view.dtype == (is_float32 ? DType::kFloat32 : DType::kBFloat16));
  }
  return shapes;
}

inline void refuses(const std::string& family, const Json& changes, const std::string& part) {
  const std::string found = problem(family, changes);
  CAPTURE(found);
  CHECK(found.find("config: `" + part) != std::string::npos);
  CHECK(found.find("export the model with --format hf") != std::string::npos);
}

template <class T>
std::optional<std::vector<T>> list(const models::GgufForm& form, const std::string& name) {
  const auto found = key<GgufArray>(form, name);
  return found ? std::optional(std::get<std::vector<T>>(*found)) : std::nullopt;
}

// Rows of `value` in this order.
inline at::Tensor picked(const at::Tensor& value, const std::vector<int64_t>& rows) {
  return value.index_select(0, at::tensor(rows));
}

}  // namespace gguf_tiny
