// DeepSeek's latent attention as llama.cpp reads it: its scales, and what is made of its layers.
// That llama.cpp computes the same is shown by tools/check_gguf.py.
#include <cmath>

#include "tests/models/gguf_tiny.h"

using namespace gguf_tiny;

TEST_CASE("latent attention: keys are latents, kv_b is divided") {
  const auto form = form_of("deepseek_v3", {{"routed_scaling_factor", 1.5}});
  CHECK(form.architecture == "deepseek2");
  CHECK(key<uint32_t>(form, "attention.head_count") == 4);
  CHECK(key<uint32_t>(form, "attention.head_count_kv") == 1);
  CHECK(key<uint32_t>(form, "attention.q_lora_rank") == 14);
  CHECK(key<uint32_t>(form, "attention.kv_lora_rank") == 10);
  CHECK(key<uint32_t>(form, "attention.key_length") == 14);
  CHECK(key<uint32_t>(form, "attention.value_length") == 10);
  CHECK(key<uint32_t>(form, "attention.key_length_mla") == 10);
  CHECK(key<uint32_t>(form, "attention.value_length_mla") == 7);
  CHECK(key<uint32_t>(form, "rope.dimension_count") == 4);
  CHECK(key<uint32_t>(form, "leading_dense_block_count") == 3);
  CHECK(key<uint32_t>(form, "expert_shared_count") == 1);
  CHECK(key<uint32_t>(form, "expert_gating_func") == 2);
  CHECK(key<float>(form, "expert_weights_scale") == 1.5f);
  CHECK(key<bool>(form, "expert_weights_norm") == true);
  CHECK(form.query_scale == 1);
  CHECK(form.notes.empty());
  CHECK(form_of("deepseek_v3", {{"rms_norm_eps", 1e-5}}).notes.size() == 1);

  const Json two = {{"num_hidden_layers", 2}, {"first_k_dense_replace", 1}};
  Shapes expected = {{"token_embd.weight", {61, 32}},
                     {"output_norm.weight", {32}},
                     {"output.weight", {61, 32}},
                     {"blk.0.ffn_gate.weight", {40, 32}},
                     {"blk.0.ffn_up.weight", {40, 32}},
                     {"blk.0.ffn_down.weight", {32, 40}},
                     {"blk.1.ffn_gate_inp.weight", {3, 32}},
                     {"blk.1.exp_probs_b.bias", {3}},
                     {"blk.1.ffn_gate_exps.weight", {3, 24, 32}},
                     {"blk.1.ffn_up_exps.weight", {3, 24, 32}},
                     {"blk.1.ffn_down_exps.weight", {3, 32, 24}},
                     {"blk.1.ffn_gate_shexp.weight", {24, 32}},
                     {"blk.1.ffn_up_shexp.weight", {24, 32}},
                     {"blk.1.ffn_down_shexp.weight", {32, 24}}};
  for (const std::string block : {"blk.0.", "blk.1."}) {
    expected[block + "attn_norm.weight"] = expected[block + "ffn_norm.weight"] = {32};
    expected[block + "attn_q_a.weight"] = {14, 32};
    expected[block + "attn_q_a_norm.weight"] = {14};
    expected[block + "attn_q_b.weight"] = {4 * 10, 14};
    expected[block + "attn_kv_a_mqa.weight"] = {10 + 4, 32};
    expected[block + "attn_kv_a_norm.weight"] = {10};
    expected[block + "attn_k_b.weight"] = {4, 10, 6};
    expected[block + "attn_v_b.weight"] = {4, 7, 10};
    expected[block + "attn_output.weight"] = {32, 4 * 7};
  }
  CHECK(shapes_of("deepseek_v3", two) == expected);

  const auto model = model_of(config_of("deepseek_v3"));
  const auto tensors = made(*model, form_of("deepseek_v3"));
  const at::Tensor kv = value_of(*model, "model.layers.2.self_attn.kv_b_proj.weight");
  for (int64_t head = 0; head < 4; ++head) {
    CHECK(at::equal(tensors.at("blk.2.attn_k_b.weight")[head], kv.narrow(0, 13 * head, 6).t()));
    CHECK(at::equal(tensors.at("blk.2.attn_v_b.weight")[head], kv.narrow(0, 13 * head + 6, 7)));
  }
  CHECK(at::equal(tensors.at("blk.2.attn_q_b.weight"),
                  value_of(*model, "model.layers.2.self_attn.q_b_proj.weight")));
}

TEST_CASE("latent attention: what rotates lies in pairs") {
  const Json halves = {{"rope_interleave", false}};
  const auto model = model_of(config_of("deepseek_v3", halves));
  const auto tensors = made(*model, form_of("deepseek_v3", halves));
  std::vector<int64_t> rows;
  for (int64_t head = 0; head < 4; ++head)
    for (const int64_t row : {0, 1, 2, 3, 4, 5, 6, 8, 7, 9}) rows.push_back(10 * head + row);
  CHECK(at::equal(tensors.at("blk.1.attn_q_b.weight"),
                  picked(value_of(*model, "model.layers.1.self_attn.q_b_proj.weight"), rows)));
  CHECK(at::equal(tensors.at("blk.1.attn_kv_a_mqa.weight"),
                  picked(value_of(*model, "model.layers.1.self_attn.kv_a_proj_with_mqa.weight"),
                         {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 11, 13})));
  const Json plain = {{"rope_interleave", false}, {"q_lora_rank", nullptr}};
  const auto whole = model_of(config_of("deepseek_v3", plain));
  CHECK(at::equal(made(*whole, form_of("deepseek_v3", plain)).at("blk.1.attn_q.weight"),
                  picked(value_of(*whole, "model.layers.1.self_attn.q_proj.weight"), rows)));
  CHECK(key<uint32_t>(form_of("deepseek_v3", plain), "attention.q_lora_rank") == 0);
}

TEST_CASE("latent attention: llama.cpp's scales of rotations and scores are the model's") {
  const Json kinds[] = {{{"mscale", 1.0}, {"mscale_all_dim", 1.0}},
                        {{"mscale", 0.7}, {"mscale_all_dim", 1.3}},
                        {{"mscale_all_dim", 0.7}},
                        {{"attention_factor", 1.3}},
                        {{"attention_factor", 1.0}},
                        Json::object(),
                        {{"rope_type", "linear"}},
                        {{"rope_type", "linear"}, {"mscale_all_dim", 0.5}}};
  for (Json rope : kinds) {
    CAPTURE(rope.dump());
    if (!rope.contains("rope_type")) rope["rope_type"] = "yarn";
    rope.update({{"factor", 8.0}, {"original_max_position_embeddings", 32}});
    const bool yarn = rope["rope_type"] == "yarn";
    const Json change = {{"rope_scaling", rope}};
    const auto form = form_of("deepseek_v3", change);
    const models::Family& family = models::families().find("deepseek_v3");
    const models::DecoderConfig c = family.config(parsed(config_of("deepseek_v3", change)));
    const auto scale = [](double k) { return 1 + 0.1 * k * std::log(8.0); };
    const double log_mul = key<float>(form, "rope.scaling.yarn_log_multiplier").value_or(0) / 0.1;
    const double a = key<float>(form, "rope.scaling.attn_factor").value_or(1);
    // llama_context's factor, which the graph multiplies by scale(1), as ggml does for yarn.
    const double attn_factor = yarn && log_mul != 0 ? a / scale(1) : a;
    const double of_scores = std::pow(attn_factor * scale(1) * scale(log_mul), 2) / std::sqrt(10.0);
    CHECK(attn_factor * (yarn ? scale(1) : 1) ==
          doctest::Approx(yarn ? c.rotary.attention_factor : 1).epsilon(1e-5));
    CHECK(of_scores == doctest::Approx(c.attention.scale).epsilon(1e-5));
  }
  const auto usual = form_of(
      "deepseek_v3",
      {{"rope_scaling",
        {{"rope_type", "yarn"}, {"factor", 8.0}, {"mscale", 1.0}, {"mscale_all_dim", 1.0}}}});
  CHECK(*key<float>(usual, "rope.scaling.yarn_log_multiplier") == doctest::Approx(0.1));
}

TEST_CASE("latent attention: what llama.cpp computes otherwise is refused") {
  refuses("deepseek_v3", {{"attention_bias", true}}, "attention_bias`: a bias");
  refuses("deepseek_v3", {{"num_hidden_layers", 27}}, "q_lora_rank`: queries of rank 14 in a");
  CHECK(problem("deepseek_v3", {{"num_hidden_layers", 27}, {"q_lora_rank", nullptr}}) ==
        "no error");
  const auto scaling = [](const Json& value) { return Json{{"rope_scaling", value}}; };
  refuses("deepseek_v3", scaling({{"rope_type", "yarn"}, {"factor", 1.0}}),
          "rope_scaling`: `factor` 1, not above 1");
  refuses("deepseek_v3",
          scaling({{"rope_type", "dynamic"}, {"factor", 2.0}, {"mscale_all_dim", 1}}),
          "rope_scaling`: `mscale_all_dim` without yarn");
  refuses("deepseek_v3", scaling({{"rope_type", "llama3"}, {"factor", 8.0}}),
          "rope_scaling`: `rope_type` llama3");
}
