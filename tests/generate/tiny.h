// A model of two small blocks for tests of the sampler.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "temper/base/json.h"
#include "temper/models/files/load.h"

namespace temper::generate::tiny {

inline models::HfConfig config(int64_t vocabulary, bool tied = true) {
  const Json json = {{"model_type", "qwen3"},
                     {"vocab_size", vocabulary},
                     {"hidden_size", 16},
                     {"intermediate_size", 24},
                     {"num_hidden_layers", 2},
                     {"num_attention_heads", 2},
                     {"num_key_value_heads", 1},
                     {"head_dim", 8},
                     {"max_position_embeddings", 512},
                     {"initializer_range", 0.3},
                     {"tie_word_embeddings", tied}};
  return models::HfConfig::parse(json, "test");
}

inline std::unique_ptr<models::CausalLM> model(int64_t vocabulary,
                                               std::vector<int32_t> eos_token_ids,
                                               bool tied = true) {
  auto model = models::init_model(config(vocabulary, tied), 3);
  model->eos_token_ids = std::move(eos_token_ids);
  return model;
}

}  // namespace temper::generate::tiny
