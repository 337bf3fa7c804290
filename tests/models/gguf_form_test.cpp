// A model's configuration as the keys of a GGUF file, and what is refused.
#include "temper/models/gguf/gguf_form.h"

#include "tests/models/gguf_tiny.h"

using namespace gguf_tiny;

TEST_CASE("sizes, windows, caps and positions become keys") {
  for (const std::string& family : gguf_families()) {
    if (is_own(family)) continue;
    CAPTURE(family);
    const models::GgufForm form = form_of(family);
    const models::Family& entry = models::families().find(family);
    const models::DecoderConfig config = entry.config(parsed(config_of(family)));
    CHECK(form.architecture == entry.gguf->name);
    CHECK(key<uint32_t>(form, "context_length") == 128);
    CHECK(key<uint32_t>(form, "embedding_length") == 32);
    CHECK(key<uint32_t>(form, "block_count") == 7);
    CHECK(key<uint32_t>(form, "feed_forward_length") == 40);
    CHECK(key<uint32_t>(form, "attention.head_count") == 4);
    CHECK(key<uint32_t>(form, "attention.head_count_kv") == config.attention.num_kv_heads);
    CHECK(key<uint32_t>(form, "attention.key_length") == 8);
    CHECK(key<uint32_t>(form, "attention.value_length") == 8);
    CHECK(key<uint32_t>(form, "vocab_size") == 61);
    CHECK(key<uint32_t>(form, "rope.dimension_count") == 8 * config.rotary.share);
    CHECK(key<float>(form, config.norm_centered ? "attention.layer_norm_epsilon"
                                                : "attention.layer_norm_rms_epsilon") ==
          static_cast<float>(config.attention.norm_eps));
    CHECK(key<float>(form, "rope.freq_base") == static_cast<float>(config.rotary.theta));
    CHECK(key<float>(form, "rope.freq_base_swa").has_value() == config.local_rotary.has_value());
    CHECK(key<uint32_t>(form, "attention.sliding_window").has_value() ==
          (entry.gguf->windows && family != "exaone4"));
    CHECK(key<uint32_t>(form, "expert_count").has_value() == (config.sparse != nullptr));
    CHECK(!key<GgufArray>(form, "attention.sliding_window_pattern"));
  }
  CHECK(key<float>(form_of("gemma2"), "attn_logit_softcapping") == 50.0f);
  CHECK(key<float>(form_of("gemma2"), "final_logit_softcapping") == 30.0f);
  const auto pattern = key<GgufArray>(form_of("gemma3_text", {{"sliding_window_pattern", 2}}),
                                      "attention.sliding_window_pattern");
  CHECK(pattern == GgufArray(std::vector<uint32_t>{1, 0, 1, 0, 1, 0, 1}));
}

TEST_CASE("without a layer that has a window there is no pattern, which llama.cpp would not load") {
  const Json full = {{"layer_types", std::vector<std::string>(7, "full_attention")}};
  for (const auto& [family, window] :
       {std::pair<const char*, std::optional<uint32_t>>{"gemma2", 128},
        {"gpt_oss", 128},
        {"gemma3_text", std::nullopt},
        {"olmo3", std::nullopt}}) {
    CAPTURE(family);
    const models::GgufForm form = form_of(family, full);
    CHECK(key<uint32_t>(form, "attention.sliding_window") == window);
    CHECK(!key<GgufArray>(form, "attention.sliding_window_pattern"));
  }
  CHECK(problem("cohere2", full).find("`layer_types`: no layer with a window") !=
        std::string::npos);
}

TEST_CASE("scaled positions: linear and yarn as keys, llama3 as factors of the frequencies") {
  const auto scaled = [](const Json& scaling) {
    return form_of("llama", {{"rope_scaling", scaling}});
  };
  const auto linear = scaled({{"rope_type", "linear"}, {"factor", 4.0}});
  CHECK(key<std::string>(linear, "rope.scaling.type") == "linear");
  CHECK(key<float>(linear, "rope.scaling.factor") == 4.0f);
  Json yarn = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32}};
  CHECK(key<std::string>(scaled(yarn), "rope.scaling.type") == "yarn");
  CHECK(key<uint32_t>(scaled(yarn), "rope.scaling.original_context_length") == 32);
  CHECK(!key<float>(scaled(yarn), "rope.scaling.attn_factor"));
  CHECK(!key<float>(scaled(yarn), "rope.scaling.yarn_beta_fast"));
  CHECK(scaled(yarn).notes.empty());
  yarn["truncate"] = false;  // which llama.cpp does not have
  CHECK(scaled(yarn).notes.size() == 1);
  yarn["beta_fast"] = 8;
  CHECK(key<float>(scaled(yarn), "rope.scaling.yarn_beta_fast") == 8.0f);
  yarn["attention_factor"] = 1.5;
  CHECK(*key<float>(scaled(yarn), "rope.scaling.attn_factor") ==
        doctest::Approx(1.5 / (1 + 0.1 * std::log(4.0))));
  // At theta 100 and heads of 8, wavelengths are 6.3, 19.9, 62.8 and 199: kept, blended, divided.
  const auto llama3 = form_of("llama", {{"rope_theta", 100.0},
                                        {"rope_scaling",
                                         {{"rope_type", "llama3"},
                                          {"factor", 8.0},
                                          {"low_freq_factor", 1.0},
                                          {"high_freq_factor", 4.0},
                                          {"original_max_position_embeddings", 40}}}});
  REQUIRE(llama3.rope_factors.size() == 4);
  CHECK(llama3.rope_factors[0] == 1.0f);
  const double smooth = (40 / (2 * M_PI * std::sqrt(10.0)) - 1) / 3;
  CHECK(llama3.rope_factors[1] == doctest::Approx(1 / ((1 - smooth) / 8 + smooth)));
  CHECK(llama3.rope_factors[2] == 8.0f);
  CHECK(llama3.rope_factors[3] == 8.0f);
  const auto model = model_of(config_of("llama"));
  const at::Tensor written = made(*model, llama3).at("rope_freqs.weight");
  CHECK(at::equal(written, at::tensor(llama3.rope_factors)));
}

TEST_CASE("what llama.cpp computes otherwise is refused by its key") {
  const auto says = [](const std::string& found, const std::string& part) {
    CAPTURE(found);
    return found.find("config: `" + part) != std::string::npos &&
           found.find("--format hf") != std::string::npos;
  };
  CHECK(says(problem("qwen3", {{"attention_bias", true}}), "attention_bias`: a bias of attention"));
  CHECK(says(problem("qwen2", {{"head_dim", 16}}), "head_dim`: 4 heads of 16 with a hidden size"));
  CHECK(says(problem("qwen2", {{"use_sliding_window", true}, {"max_window_layers", 3}}),
             "use_sliding_window`: layers that attend to a window"));
  CHECK(problem("qwen2", {{"use_sliding_window", true},
                          {"max_window_layers", 3},
                          {"sliding_window", 128}}) == "no error");
  CHECK(says(problem("mistral", {{"sliding_window", 5}}), "sliding_window`: layers that attend"));
  CHECK(says(problem("gemma", {{"tie_word_embeddings", false}}), "tie_word_embeddings`: a head"));
  CHECK(says(problem("gemma2", {{"final_logit_softcapping", nullptr}}), "final_logit_softcapping"));
  CHECK(problem("gemma3_text", {{"attn_logit_softcapping", 5.0}}) == "no error");  // not read
  CHECK(says(problem("llama", {{"hidden_act", "gelu"}}), "hidden_act`: another activation"));
  const auto scaling = [](const Json& value) { return Json{{"rope_scaling", value}}; };
  CHECK(
      says(problem("qwen2", scaling({{"rope_type", "llama3"}, {"factor", 8.0}})), "rope_scaling"));
  CHECK(says(problem("gemma3_text", scaling({{"rope_type", "yarn"}, {"factor", 4.0}})),
             "rope_scaling`: `rope_type` yarn"));
}

TEST_CASE("mixtures become keys, or are refused where the architecture has other weights") {
  const auto glm = form_of("glm4_moe", {{"routed_scaling_factor", 1.5}, {"n_shared_experts", 2}});
  CHECK(key<uint32_t>(glm, "expert_count") == 3);
  CHECK(key<uint32_t>(glm, "expert_used_count") == 2);
  CHECK(key<uint32_t>(glm, "expert_feed_forward_length") == 24);
  CHECK(key<uint32_t>(glm, "expert_shared_count") == 2);
  CHECK(key<uint32_t>(glm, "leading_dense_block_count") == 1);
  CHECK(key<uint32_t>(glm, "expert_gating_func") == 2);
  CHECK(key<float>(glm, "expert_weights_scale") == 1.5f);
  CHECK(key<bool>(glm, "expert_weights_norm") == true);
  const auto refuses = [](const std::string& family, const Json& changes, const char* name) {
    const std::string found = problem(family, changes);
    CAPTURE(found);
    CHECK(found.find(str("config: `", name, "`: ")) != std::string::npos);
    CHECK(found.find("--format hf") != std::string::npos);
  };
  refuses("qwen3_moe", {{"norm_topk_prob", false}}, "norm_topk_prob");
  refuses("olmoe", {{"norm_topk_prob", true}}, "norm_topk_prob");
  refuses("olmoe", {{"num_key_value_heads", 2}}, "num_key_value_heads");
  refuses("qwen3_moe", {{"mlp_only_layers", {1}}}, "mlp_only_layers");
  refuses("mixtral", {{"sliding_window", 5}}, "sliding_window");
  refuses("gpt_oss", {{"swiglu_limit", 5.0}}, "swiglu_limit");
  refuses("gpt_oss", {{"swiglu_alpha", 1.5}}, "swiglu_alpha");
  refuses("gpt_oss", {{"attention_bias", false}}, "attention_bias");
}

TEST_CASE("factors, layers without positions and a repeated embedding") {
  const Json factors = {{"embedding_multiplier", 1.5},
                        {"residual_multiplier", 0.5},
                        {"attention_multiplier", 0.25},
                        {"logits_scaling", 4.0}};
  for (const char* family : {"granite", "granitemoe"}) {
    const auto form = form_of(family, factors);
    CHECK(key<float>(form, "embedding_scale") == 1.5f);
    CHECK(key<float>(form, "residual_scale") == 0.5f);
    CHECK(key<float>(form, "attention.scale") == 0.25f);
    CHECK(key<float>(form, "logit_scale") == 4.0f);
    CHECK(form.query_scale == 1);
  }
  CHECK(key<float>(form_of("cohere2", {{"logit_scale", 0.5}}), "logit_scale") == 0.5f);
  CHECK(problem("granite", {{"residual_multiplier", 0}}).find("`residual_multiplier`") !=
        std::string::npos);
  CHECK(problem("smollm3", {{"no_rope_layers", {1, 1, 1, 1, 1, 1, 1}}}).find("`no_rope_layers`") !=
        std::string::npos);
  CHECK(problem("exaone4", {{"sliding_window", 5}}).find("`sliding_window`: windows in a model") !=
        std::string::npos);
  CHECK(problem("exaone4", {{"sliding_window", 5}, {"num_hidden_layers", 64}}) == "no error");
  CHECK(key<float>(form_of("ministral3", {{"rope_parameters",
                                           {{"rope_type", "default"},
                                            {"llama_4_scaling_beta", 0.5},
                                            {"original_max_position_embeddings", 64}}}}),
                   "attention.temperature_scale") == 0.5f);
  const Json tied = {{"tie_word_embeddings", true}};
  const auto model = model_of(config_of("olmo2", tied));
  const auto tensors = made(*model, form_of("olmo2", tied));
  CHECK(at::equal(tensors.at("output.weight"), tensors.at("token_embd.weight")));
}
