// What tests of GGUF files share: a tiny model of every family that llama.cpp has, and what is
// written of it.
#pragma once

#include <doctest/doctest.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "temper/models/decoder.h"
#include "temper/models/gguf.h"
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
      {"lfm2", {{"full_attn_idxs", {1, 4}}, {"block_auto_adjust_ff_dim", false}}}};
  const auto found = known.find(family);
  Json own = found == known.end() ? Json::object() : found->second;
  own.update({{"num_local_experts", 3}, {"num_experts_per_tok", 2}, {"moe_intermediate_size", 24}});
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

}  // namespace gguf_tiny
