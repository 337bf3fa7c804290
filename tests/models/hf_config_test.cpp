// What a config.json says that would change the model: it is used, or refused by file and key.
#include "temper/models/files/hf_config.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/json.h"
#include "temper/models/config_values.h"
#include "temper/models/decoder.h"
#include "temper/models/model.h"

using namespace temper;
using models::HfConfig;
using ops::Activation;

namespace {

// Of which a quarter of each head rotates.
bool has_delta_nets(const std::string& model_type) {
  return model_type.starts_with("qwen3_5") || model_type == "qwen3_next";
}

Json small(const std::string& model_type) {
  Json config = {{"model_type", model_type}, {"vocab_size", 31},
                 {"hidden_size", 8},         {"intermediate_size", 12},
                 {"num_hidden_layers", 2},   {"num_attention_heads", 2},
                 {"num_key_value_heads", 1}, {"head_dim", has_delta_nets(model_type) ? 8 : 4}};
  if (model_type == "deepseek_v3") {
    config["num_key_value_heads"] = 2;  // as many as heads
    config.erase("head_dim");           // which several keys say
  }
  return config;
}

// What make_model says of a small model with `change` merged into its config.
std::string refusal(const std::string& model_type, const Json& change) {
  Json config = small(model_type);
  config.merge_patch(change);
  try {
    models::make_model(HfConfig::parse(config, "dir/config.json"));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

Activation gemma_activation(const Json& change) {
  Json config = small("gemma2");
  config.merge_patch(change);
  const HfConfig parsed = HfConfig::parse(config, "dir/config.json");
  return models::family_of(parsed).config(parsed).activation;
}

}  // namespace

TEST_CASE("Gemma 2 and 3 use the activation that hidden_activation names") {
  CHECK(gemma_activation(Json::object()) == Activation::kGeluTanh);
  CHECK(gemma_activation({{"hidden_activation", "gelu_pytorch_tanh"}}) == Activation::kGeluTanh);
  CHECK(gemma_activation({{"hidden_activation", "gelu"}}) == Activation::kGelu);
  CHECK(gemma_activation({{"hidden_activation", "silu"}}) == Activation::kSilu);
  CHECK(gemma_activation({{"hidden_act", "silu"}}) == Activation::kGeluTanh);  // not its key
}

TEST_CASE("an activation that is not known is refused by the key that holds it") {
  for (const std::string& family : models::families().names()) {
    CAPTURE(family);
    CHECK(refusal(family, Json::object()) == "");
    // A family reads one of the two keys.
    const std::string said = refusal(family, {{"hidden_act", "relu6"}}) +
                             refusal(family, {{"hidden_activation", "relu6"}});
    CHECK(said.find("dir/config.json: `hidden_act") == 0);
    CHECK(said.find("`: `relu6`") != std::string::npos);
    CHECK(said.find("dir/config.json", 1) == std::string::npos);
  }
}

TEST_CASE("rotary embeddings of a part of the head are refused, wherever the config says so") {
  const Json part = {{"partial_rotary_factor", 0.5}};
  for (const std::string& family : models::families().names()) {
    CAPTURE(family);
    CHECK(refusal(family, {{"partial_rotary_factor", 1.0}}) == "");
    for (const Json& change :
         {part, Json{{"rope_parameters", part}}, Json{{"rope_scaling", part}}}) {
      const std::string said = refusal(family, change);
      if (family == "glm4" || family == "glm4_moe" || family == "phi3" ||
          has_delta_nets(family)) {  // which rotate a part
        CHECK(said == "");
        continue;
      }
      CAPTURE(said);
      CHECK(said.find("dir/config.json: `") == 0);
      CHECK((said.find("`partial_rotary_factor`: 0.5 is not supported") != std::string::npos ||
             said.find("an object for each kind of layer") != std::string::npos));
    }
  }
  const Json nested = {
      {"rope_parameters", {{"full_attention", part}, {"sliding_attention", part}}}};
  CHECK(refusal("gemma3_text", nested).find("`partial_rotary_factor`") != std::string::npos);
  CHECK(refusal("glm4", {{"partial_rotary_factor", 0.125}}).find("are 0, expected a number") !=
        std::string::npos);
  CHECK(refusal("glm4", {{"partial_rotary_factor", 1.5}}).find("up to 1") != std::string::npos);
}

TEST_CASE("a part of an odd number of features rotates one more, by powers over that number") {
  // By transformers 5.24's Glm4RotaryEmbedding: heads of 12 features, three quarters of them.
  nn::RotaryConfig config;
  config.share = 0.75;
  const std::vector<float> found = nn::Rotary(config, 12).inverse_frequency();
  REQUIRE(found.size() == 5);
  for (size_t i = 0; i < found.size(); ++i)
    CHECK(found[i] == doctest::Approx(std::pow(10000, -2.0 * static_cast<double>(i) / 9)));
}

TEST_CASE("numbers that no model has are refused by their key") {
  const auto refused = [](const std::string& family, const char* key, const Json& change) {
    const std::string said = refusal(family, change);
    CAPTURE(family);
    CAPTURE(change.dump());
    CAPTURE(said);
    CHECK(said.find("dir/config.json: `") == 0);
    CHECK(said.find(std::string("`") + key + "`: found ") != std::string::npos);
  };
  for (const std::string& family : models::families().names()) {
    const char* eps = family == "cohere2" ? "layer_norm_eps"
                      : family == "lfm2"  ? "norm_eps"
                                          : "rms_norm_eps";
    refused(family, eps, {{eps, -1}});
    CHECK(refusal(family, {{eps, 0}}) == "");
    refused(family, "initializer_range", {{"initializer_range", -0.5}});
    for (const double theta : {0, -5}) {
      refused(family, "rope_theta", {{"rope_theta", theta}});
      const Json part = {{"rope_theta", theta}};
      const bool by_kind = family == "gemma3_text" || family == "gemma4_text" || family == "olmo3";
      refused(family, "rope_theta",
              {{"rope_parameters",
                by_kind ? Json{{"full_attention", part}, {"sliding_attention", part}} : part}});
    }
  }
  const Json caps = {
      {"attn_logit_softcapping", 0}, {"final_logit_softcapping", -3}, {"query_pre_attn_scalar", 0}};
  for (const auto& [key, value] : caps.items()) refused("gemma2", key.c_str(), {{key, value}});
  refused("gemma3_text", "final_logit_softcapping", {{"final_logit_softcapping", 0}});
  refused("gemma3_text", "rope_local_base_freq", {{"rope_local_base_freq", 0}});
  for (const char* key :
       {"low_freq_factor", "high_freq_factor", "original_max_position_embeddings"})
    refused("llama", key, {{"rope_scaling", {{"rope_type", "llama3"}, {"factor", 2}, {key, 0}}}});
}

TEST_CASE("a model whose tokens attend to later ones is refused in every family") {
  for (const std::string& family : models::families().names()) {
    CAPTURE(family);
    CHECK(refusal(family, {{"is_causal", false}}).find("dir/config.json: `is_causal`") == 0);
    CHECK(refusal(family, {{"is_causal", true}}) == "");
  }
}

TEST_CASE(
    "rotary parameters by kind of layer are refused where a family has one for all, and one "
    "for all where it has them by kind") {
  const Json yarn = {{"rope_type", "yarn"}, {"factor", 4}};
  const Json by_kind = {{"full_attention", yarn},
                        {"sliding_attention", {{"rope_type", "default"}}}};
  CHECK(refusal("llama", {{"rope_parameters", by_kind}}).find("`rope_parameters`") !=
        std::string::npos);
  for (const std::string family : {"gemma3_text", "olmo3", "gemma4_text"}) {
    CAPTURE(family);
    CHECK(refusal(family, {{"rope_parameters", by_kind}}) == "");
    CHECK(refusal(family, {{"rope_parameters", {{"rope_type", "default"}}}}) == "");
    CHECK(
        refusal(family, {{"rope_parameters", yarn}}).find("`rope_parameters`: found `rope_type`") !=
        std::string::npos);
    CHECK(refusal(family, {{"rope_scaling", by_kind}}).find("`rope_scaling`") != std::string::npos);
  }
}

TEST_CASE("dropout in a config is named, as it is not applied") {
  const auto said = [](const Json& change) {
    Json config = small("seed_oss");
    config.merge_patch(change);
    return models::unapplied_dropout(HfConfig::parse(config, "dir/config.json"));
  };
  CHECK(said(Json::object()) == "");
  CHECK(said({{"attention_dropout", 0.0}, {"residual_dropout", nullptr}}) == "");
  const std::string both = said({{"attention_dropout", 0.1}, {"residual_dropout", 0.2}});
  CHECK(both.find(
            "dir/config.json: `attention_dropout` 0.1, `residual_dropout` 0.2 is not applied") ==
        0);
}

TEST_CASE("an unknown family names the nearest, and how one is added") {
  const auto nearest = [](const std::string& type) {
    const std::string said = refusal(type, Json::object());
    CAPTURE(said);
    CHECK(said.find("dir/config.json: `model_type`: unknown model family `" + type + "`") == 0);
    CHECK(said.find("CONTRIBUTING.md") != std::string::npos);
    const std::string phrase = "the nearest is `";
    const size_t at = said.find(phrase);
    return at == said.npos ? ""
                           : said.substr(at + phrase.size(), said.find('`', at + 16) - at - 16);
  };
  CHECK(nearest("mistral4") == "mistral");
  CHECK(nearest("llama4") == "llama");
  CHECK(nearest("gemma3n_text") == "gemma3_text");
  CHECK(nearest("phi4") == "phi3");
  CHECK(nearest("zamba") == "");
}

TEST_CASE("sizes that no model has are refused before memory is taken for them") {
  for (const std::string& family : models::families().names()) {
    CAPTURE(family);
    for (const auto& [key, value] : {std::pair<const char*, Json>{"num_hidden_layers", 2000000000},
                                     {"num_hidden_layers", 18446744073709551615u},
                                     {"num_hidden_layers", 0},
                                     {"head_dim", 2000000000},
                                     {"num_attention_heads", -1}}) {
      // Latent attention has heads of several sizes; a file's head_dim is that of one of them.
      const std::string name =
          family == "deepseek_v3" && std::string(key) == "head_dim" ? "qk_rope_head_dim" : key;
      const std::string said = refusal(family, {{name, value}});
      CAPTURE(said);
      CHECK(said.find(name) != std::string::npos);
    }
  }
}

TEST_CASE("latent attention's head_dim is that of the rotated part, or not written") {
  CHECK(refusal("deepseek_v3", {{"head_dim", 64}}) == "");
  CHECK(refusal("deepseek_v3", {{"head_dim", 4}}).find("`head_dim`: expected 64") !=
        std::string::npos);
}

TEST_CASE("a key that is null is false where it says yes or no") {
  const HfConfig config = HfConfig::parse(
      {{"model_type", "deepseek_v3"}, {"norm_topk_prob", nullptr}}, "dir/config.json");
  CHECK(config.boolean("norm_topk_prob", true) == false);
  CHECK(config.boolean("rope_interleave", true) == true);  // missing
}

TEST_CASE("latent attention has as many heads of keys as of queries") {
  CHECK(refusal("deepseek_v3", {{"num_key_value_heads", 1}}).find("num_key_value_heads") !=
        std::string::npos);
}

TEST_CASE("dynamic rope scaling ends where a token's rotation would depend on the batch") {
  nn::RotaryConfig config;
  config.kind = nn::RotaryConfig::Kind::kDynamic;
  config.max_positions = 100;
  const nn::Rotary rotary(config, 8);
  CHECK(rotary.table(100, at::kFloat).cos.size(0) >= 100);
  CHECK_THROWS_WITH_AS(rotary.table(101, at::kFloat), doctest::Contains("max_position_embeddings"),
                       ConfigError);
}

TEST_CASE("longrope ends where another list of factors would be that of every token") {
  const Json scaling = {
      {"type", "su"}, {"short_factor", {1.5, 2}}, {"long_factor", {3, 4}}, {"factor", 4}};
  CHECK(refusal("phi3", {{"rope_scaling", scaling}}) == "");
  Json broken = scaling;
  broken["short_factor"] = {1, 2, 3};
  CHECK(refusal("phi3", {{"rope_scaling", broken}}).find("found 3 numbers, expected 2") !=
        std::string::npos);
  broken["short_factor"] = {1, "2"};
  CHECK(refusal("phi3", {{"rope_scaling", broken}}).find("`short_factor`: found \"2\"") !=
        std::string::npos);
  Json config = small("phi3");
  config.update({{"rope_scaling", scaling}, {"original_max_position_embeddings", 100}});
  const HfConfig parsed = HfConfig::parse(config, "dir/config.json");
  const nn::Rotary rotary(models::families().find("phi3").config(parsed).rotary, 4);
  const double factor = std::sqrt(1 + std::log(4.0) / std::log(100.0));
  CHECK(rotary.table(100, at::kDouble).cos[0][0].item<double>() == doctest::Approx(factor));
  CHECK(rotary.inverse_frequency()[0] == 1 / 1.5f);
  CHECK_THROWS_WITH_AS(rotary.table(101, at::kFloat), doctest::Contains("long_factor"),
                       ConfigError);
}

TEST_CASE("rotary frequencies are those of PyTorch's arithmetic, to the bit") {
  // By transformers 5.23's ROPE_INIT_FUNCTIONS on PyTorch 2.13: powers of theta as float32, and a
  // number over a tensor is the tensor's reciprocal times the number.
  nn::RotaryConfig config;
  config.theta = 12345.6;
  const auto bits = [](const std::vector<float>& values) {
    std::vector<uint32_t> out;
    for (const float value : values) out.push_back(std::bit_cast<uint32_t>(value));
    return out;
  };
  using Bits = std::vector<uint32_t>;
  CHECK(bits(nn::Rotary(config, 16).inverse_frequency()) == Bits{0x3f800000, 0x3e9db322, 0x3dc24a68,
                                                                 0x3cef5f2b, 0x3c1374db, 0x3b35abb0,
                                                                 0x3a5fd2d5, 0x3989e0ea});
  config.kind = nn::RotaryConfig::Kind::kLlama3;
  config.factor = 32;
  CHECK(bits(nn::Rotary(config, 16).inverse_frequency()) == Bits{0x3f800000, 0x3e9db322, 0x3dc24a68,
                                                                 0x3cef5f2b, 0x3c1374db, 0x3b1f0a0c,
                                                                 0x3872d3b2, 0x3709e0ea});
  config.theta = 10000;
  config.factor = 8;
  const Bits found = bits(nn::Rotary(config, 64).inverse_frequency());
  CHECK(Bits(found.begin() + 20, found.begin() + 26) ==
        Bits{0x3b4f3e38, 0x3ae47c6e, 0x3a6d8ae2, 0x39ee0430, 0x395ffbd9, 0x38c4948c});
}

TEST_CASE("a rope type that is not known is refused by its key") {
  const std::string said =
      refusal("llama", {{"rope_scaling", {{"rope_type", "ntk"}, {"factor", 4}}}});
  CHECK(said.find("`rope_scaling`: `rope_type`: `ntk` is not supported") != std::string::npos);
  CHECK(refusal("llama", {{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 0}}}})
            .find("`factor`") != std::string::npos);
  CHECK(refusal("llama", {{"rope_scaling", {{"rope_type", "yarn"}, {"beta_fast", 0}}}})
            .find("`beta_fast`") != std::string::npos);
}
