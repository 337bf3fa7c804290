// Configs as transformers reads them (tests/golden/make_config_goldens.py): what a family's class
// fills in where the file is silent, and rotary frequencies of every scaling.
#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "temper/base/json.h"
#include "temper/models/decoder.h"
#include "tests/models/golden.h"

using namespace temper;
using models::DecoderConfig;
using models::HfConfig;

namespace {

DecoderConfig decoder_config(const HfConfig& config) {
  return models::family_of(config).config(config);
}

double number(const Json& json, const char* key, double if_null) {
  return json.at(key).is_null() ? if_null : json.at(key).get<double>();
}

void check_rotary(const nn::RotaryConfig& found, const Json& expected) {
  using Kind = nn::RotaryConfig::Kind;
  CHECK(found.theta == expected.at("rope_theta").get<double>());
  const std::string type = expected.at("rope_type");
  CHECK((found.kind == (type == "linear"         ? Kind::kLinear
                        : type == "yarn"         ? Kind::kYarn
                        : type == "proportional" ? Kind::kProportional
                                                 : Kind::kDefault)));
  if (type != "default") CHECK(found.factor == expected.value("factor", 1.0));
  CHECK(found.share == expected.value("partial_rotary_factor", 1.0));
  CHECK(found.query_scale_beta == expected.value("llama_4_scaling_beta", 0.0));
}

}  // namespace

TEST_CASE("a config that leaves keys out means what transformers fills in") {
  std::set<std::string> checked;
  const Json goldens = read_json_file(golden_path("config.json"));
  for (const Json& golden : goldens["configs"]) {
    const HfConfig config = HfConfig::parse(golden["config"], "config.json");
    const Json& e = golden["resolved"];
    CAPTURE(golden["config"].dump());
    const DecoderConfig c = decoder_config(config);
    checked.insert(config.model_type());
    CHECK(c.vocab_size == e["vocab_size"].get<int64_t>());
    CHECK(c.hidden_size == e["hidden_size"].get<int64_t>());
    CHECK(c.intermediate_size == e["intermediate_size"].get<int64_t>());
    CHECK(c.num_hidden_layers == e["num_hidden_layers"].get<int64_t>());
    CHECK(c.attention.num_heads == e["num_attention_heads"].get<int64_t>());
    CHECK(c.attention.num_kv_heads == e["num_key_value_heads"].get<int64_t>());
    CHECK(c.attention.head_dim == e["head_dim"].get<int64_t>());
    CHECK(c.attention.norm_eps == e["rms_norm_eps"].get<double>());
    const double usual =
        1 / std::sqrt(number(e, "query_pre_attn_scalar", e["head_dim"].get<double>()));
    CHECK(c.attention.scale == number(e, "attention_multiplier", usual));
    CHECK(c.residual_scale == number(e, "residual_multiplier", 1));
    if (!e["embedding_multiplier"].is_null())
      CHECK(c.embedding_scale == e["embedding_multiplier"].get<double>());
    CHECK(c.logit_scale == number(e, "logit_scale", 1 / number(e, "logits_scaling", 1)));
    CHECK(c.attention.soft_cap == number(e, "attn_logit_softcapping", 0));
    CHECK(c.final_soft_cap == number(e, "final_logit_softcapping", 0));
    CHECK(c.initializer_range == e["initializer_range"].get<double>());
    CHECK(c.tie_word_embeddings == e["tie_word_embeddings"].get<bool>());
    CHECK(c.max_position_embeddings == e["max_position_embeddings"].get<int64_t>());
    CHECK(c.attention.o_bias == e["output_bias"].get<bool>());
    CHECK(c.mlp_bias == (e["mlp_bias"] == true));
    const Json& activation = e["hidden_act"].is_null() ? e["hidden_activation"] : e["hidden_act"];
    CHECK((c.activation ==
           (activation == "silu" ? ops::Activation::kSilu : ops::Activation::kGeluTanh)));
    for (size_t i = 0; i < c.window.size(); ++i) {
      const bool sliding =
          !e["layer_types"].is_null() && e["layer_types"][i] == "sliding_attention";
      CHECK(c.window[i] == (sliding ? e["sliding_window"].get<int64_t>() : 0));
    }
    for (size_t i = 0; i < c.window.size() && !e["layer_types"].is_null(); ++i) {
      const Json& type = e["layer_types"][i];
      CHECK(c.has_state[i] == (type == "conv" || type == "linear_attention"));
    }
    if (!e["no_rope_layers"].is_null())
      for (size_t i = 0; i < c.rotates.size(); ++i)
        CHECK(c.rotates[i] == (e["no_rope_layers"][i] == 1));
    const Json& rope = e["rope_parameters"];
    check_rotary(c.rotary, rope.contains("full_attention") ? rope["full_attention"] : rope);
    CHECK(c.local_rotary.has_value() == rope.contains("sliding_attention"));
    if (c.local_rotary) check_rotary(*c.local_rotary, rope["sliding_attention"]);
  }
  for (const std::string& family : built_in_families()) {
    CAPTURE(family);
    CHECK(checked.contains(family));  // tests/golden/make_config_goldens.py has a line for each
  }
}

TEST_CASE("rotary frequencies of every scaling are transformers'") {
  const Json goldens = read_json_file(golden_path("config.json"));
  for (const Json& golden : goldens["rope"]) {
    CAPTURE(golden["parameters"].dump());
    Json rope = golden["parameters"];
    rope["rope_theta"] = golden["rope_theta"];
    const int64_t head_dim = golden["head_dim"];
    const DecoderConfig c = decoder_config(
        HfConfig::parse({{"model_type", "llama"},
                         {"head_dim", head_dim},
                         {"max_position_embeddings", golden["max_position_embeddings"]},
                         {"rope_parameters", rope}},
                        "config.json"));
    const nn::Rotary rotary(c.rotary, head_dim);
    const std::vector<float> expected = golden["inverse_frequency"];
    REQUIRE(rotary.inverse_frequency().size() == expected.size());
    for (size_t i = 0; i < expected.size(); ++i)
      CHECK(rotary.inverse_frequency()[i] == doctest::Approx(expected[i]).epsilon(2e-7));
    // At position 0 the cosine is 1, times what the scaling multiplies it by.
    CHECK(rotary.table(1, at::kDouble).cos[0][0].item<double>() ==
          doctest::Approx(golden["attention_factor"].get<double>()).epsilon(1e-12));
  }
}
