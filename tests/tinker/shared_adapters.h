// What tests of shared passes share: small models, adapters of different forms on one, and what
// each of them trains on.
#pragma once

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "temper/models/files/load.h"
#include "temper/tinker/adapter.h"
#include "temper/train/forward_pass.h"

namespace temper::tinker::shared {

inline constexpr int64_t kWords = 61;

inline std::unique_ptr<models::CausalLM> shared_model(const std::string& model_type, bool tied) {
  Json json = {{"model_type", model_type},
               {"vocab_size", kWords},
               {"hidden_size", 24},
               {"intermediate_size", 36},
               {"num_hidden_layers", 3},
               {"num_attention_heads", 2},
               {"num_key_value_heads", 1},
               {"head_dim", 12},
               {"max_position_embeddings", 512},
               {"initializer_range", 0.3},
               {"sliding_window", 5},
               {"query_pre_attn_scalar", 10},
               {"num_experts", 5},
               {"num_experts_per_tok", 2},
               {"moe_intermediate_size", 20},
               {"full_attention_interval", 2},
               {"linear_num_key_heads", 2},
               {"linear_num_value_heads", 2},
               {"linear_key_head_dim", 6},
               {"linear_value_head_dim", 6},
               {"tie_word_embeddings", tied}};
  if (model_type == "gemma4_text")
    json.update({{"layer_types", {"sliding_attention", "full_attention", "full_attention"}},
                 {"global_head_dim", 16},
                 {"hidden_size_per_layer_input", 6},
                 {"vocab_size_per_layer_input", kWords}});
  if (model_type == "qwen3_5_text") json["head_dim"] = 16;
  return models::init_model(models::HfConfig::parse(json, "test"), 3);
}

using Gradients = std::vector<at::Tensor>;

inline bool same_numbers(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.detach().contiguous(), y = b.detach().contiguous();
  return x.sizes() == y.sizes() &&
         std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

inline void check_gradients_same(const Gradients& found, const Gradients& expected) {
  REQUIRE(found.size() == expected.size());
  bool some = false;
  for (size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(i);
    REQUIRE(found[i].defined() == expected[i].defined());
    if (!expected[i].defined()) continue;
    CHECK(same_numbers(found[i], expected[i]));
    some = some || expected[i].abs().max().item<float>() > 0;
  }
  CHECK(some);
}

// What an adapter trains on: rows of different lengths, and prompts with completions.
inline std::vector<std::vector<int32_t>> words_of(size_t adapter) {
  std::vector<std::vector<int32_t>> rows;
  for (size_t r = 0; r < 2 + adapter; ++r) {
    std::vector<int32_t>& row = rows.emplace_back();
    for (size_t k = 0; k < 4 + (3 * r + 5 * adapter) % 9; ++k)
      row.push_back(static_cast<int32_t>((3 + 11 * r + 7 * adapter + 5 * k * k) % kWords));
  }
  return rows;
}
struct Owned {
  std::vector<std::vector<int32_t>> words;
  std::vector<int32_t> unread;  // labels of a prompt that nothing is asked for
  explicit Owned(size_t adapter) : words(words_of(adapter)), unread(words[0].size(), -1) {}
  std::vector<train::PackUnit> units() const {
    std::vector<train::PackUnit> all;
    for (const std::vector<int32_t>& row : words) all.push_back({{{-1, row, row}}});
    all.push_back({{{-1, words[0], unread}, {0, words[1], words[1]}, {0, words[0], words[0]}}});
    return all;
  }
};

struct Outcome {
  at::Tensor logp;
  std::vector<Gradients> gradients;  // by adapter
};

// A pass of some adapters, and of its loss a gradient that differs by target and adapter.
inline Outcome pass_of(models::CausalLM& model, const std::vector<TrainedAdapter*>& adapters,
                       const std::vector<const Owned*>& rows, const train::PassOptions& options) {
  train::ForwardPass pass;
  std::vector<float> by;
  for (size_t a = 0; a < adapters.size(); ++a) {
    uint64_t number = 0;
    for (const train::PackUnit& unit : rows[a]->units())
      pass.add(unit, number++, adapters[a]->index());
    for (int64_t i = 0; std::ssize(by) < pass.num_targets(); ++i)
      by.push_back(std::sin(static_cast<float>(3 * i + adapters[a]->index())));
  }
  const at::Tensor logp = train::token_logp(model, pass, options).logp;
  (logp * at::tensor(by)).sum().backward();
  Outcome outcome{logp.detach(), {}};
  for (TrainedAdapter* adapter : adapters) outcome.gradients.push_back(adapter->take_gradients());
  return outcome;
}

// Adapters whose B is not zero any more.
struct Adapters {
  AdapterPlaces places;
  std::vector<std::unique_ptr<TrainedAdapter>> all;
  std::vector<Owned> rows;
  Adapters(models::CausalLM& model, const std::vector<AdapterRequest>& forms) : places(model) {
    for (size_t i = 0; i < forms.size(); ++i) {
      all.push_back(std::make_unique<TrainedAdapter>(places, forms[i]));
      rows.emplace_back(i);
    }
    for (int step = 0; step < 2; ++step)
      for (size_t i = 0; i < forms.size(); ++i) {
        pass(model, {i}, {}, false);
        all[i]->step({.learning_rate = 0.02});
      }
  }
  Outcome pass(models::CausalLM& model, const std::vector<size_t>& which,
               const train::PassOptions& options, bool take = true) {
    std::vector<TrainedAdapter*> adapters;
    std::vector<const Owned*> own;
    for (const size_t i : which) {
      adapters.push_back(all[i].get());
      own.push_back(&rows[i]);
    }
    Outcome outcome = pass_of(model, adapters, own, options);
    if (!take)
      for (size_t k = 0; k < which.size(); ++k) adapters[k]->put_gradients(outcome.gradients[k]);
    return outcome;
  }
};

inline const std::vector<AdapterRequest> kForms{{.rank = 3, .seed = 1},
                                                {.rank = 5, .seed = 2, .train_unembed = false},
                                                {.rank = 1, .seed = 3, .train_attn = false},
                                                {.rank = 8, .seed = 4, .train_mlp = false}};

}  // namespace temper::tinker::shared
