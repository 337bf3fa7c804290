// Gemma 4 as llama.cpp reads it. That it computes the same is shown by tools/check_gguf.py.
#include "tests/models/gguf_tiny.h"

using namespace gguf_tiny;

TEST_CASE("Gemma 4: two kinds of layers, shared keys, embeddings of the layers") {
  const Json change = {{"hidden_size_per_layer_input", 6},
                       {"num_kv_shared_layers", 1},
                       {"use_double_wide_mlp", true},
                       {"final_logit_softcapping", 30.0}};
  const auto form = form_of("gemma4_text", change);
  CHECK(form.architecture == "gemma4");
  CHECK(key<uint32_t>(form, "attention.key_length") == 16);
  CHECK(key<uint32_t>(form, "attention.value_length") == 16);
  CHECK(key<uint32_t>(form, "attention.key_length_swa") == 8);
  CHECK(key<uint32_t>(form, "attention.value_length_swa") == 8);
  CHECK(key<uint32_t>(form, "attention.sliding_window") == 5);
  CHECK(key<uint32_t>(form, "attention.shared_kv_layers") == 1);
  CHECK(key<uint32_t>(form, "attention.head_count_kv") == 2);
  CHECK(key<uint32_t>(form, "embedding_length_per_layer_input") == 6);
  CHECK(key<uint32_t>(form, "rope.dimension_count") == 16);
  CHECK(key<uint32_t>(form, "rope.dimension_count_swa") == 8);
  CHECK(key<float>(form, "rope.freq_base") == 1e6f);
  CHECK(key<float>(form, "rope.freq_base_swa") == 1e4f);
  CHECK(key<float>(form, "final_logit_softcapping") == 30.0f);
  CHECK(key<float>(form_of("gemma4_text"), "final_logit_softcapping") == 0.0f);
  CHECK(list<uint32_t>(form, "attention.sliding_window_pattern") ==
        std::vector<uint32_t>{1, 1, 1, 1, 1, 0, 0});
  CHECK(list<uint32_t>(form, "feed_forward_length") ==
        std::vector<uint32_t>{40, 40, 40, 40, 40, 40, 80});
  CHECK(form.query_scale == 1);
  // A quarter of the pairs rotates.
  CHECK(form.rope_factors == std::vector<float>{1, 1, 1e30f, 1e30f, 1e30f, 1e30f, 1e30f, 1e30f});

  Shapes expected = {{"token_embd.weight", {61, 32}},
                     {"output_norm.weight", {32}},
                     {"rope_freqs.weight", {8}},
                     {"per_layer_token_embd.weight", {61, 42}},
                     {"per_layer_model_proj.weight", {42, 32}},
                     {"per_layer_proj_norm.weight", {6}}};
  for (int64_t i = 0; i < 7; ++i) {
    const std::string block = str("blk.", i, ".");
    const int64_t head = i < 5 ? 8 : 16, width = i < 6 ? 40 : 80;
    for (const char* norm :
         {"attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm", "post_norm"})
      expected[block + norm + ".weight"] = {32};
    expected[block + "layer_output_scale.weight"] = {1};
    expected[block + "attn_q.weight"] = {4 * head, 32};
    expected[block + "attn_q_norm.weight"] = {head};
    expected[block + "attn_output.weight"] = {32, 4 * head};
    expected[block + "ffn_gate.weight"] = expected[block + "ffn_up.weight"] = {width, 32};
    expected[block + "ffn_down.weight"] = {32, width};
    expected[block + "inp_gate.weight"] = {6, 32};
    expected[block + "proj.weight"] = {32, 6};
    if (i == 6) continue;
    expected[block + "attn_k.weight"] = expected[block + "attn_v.weight"] = {2 * head, 32};
    expected[block + "attn_k_norm.weight"] = {head};
  }
  CHECK(shapes_of("gemma4_text", change) == expected);
}

TEST_CASE("Gemma 4: heads of layers without a window, and what is refused") {
  const Json types = {"sliding_attention", "full_attention",    "sliding_attention",
                      "full_attention",    "sliding_attention", "sliding_attention",
                      "full_attention"};
  const Json values = {
      {"attention_k_eq_v", true}, {"num_global_key_value_heads", 1}, {"layer_types", types}};
  CHECK(list<uint32_t>(form_of("gemma4_text", values), "attention.head_count_kv") ==
        std::vector<uint32_t>{2, 1, 2, 1, 2, 2, 1});
  const auto tensors = shapes_of("gemma4_text", values);
  CHECK(tensors.at("blk.1.attn_k.weight") == std::vector<int64_t>{16, 32});
  CHECK(!tensors.contains("blk.1.attn_v.weight"));  // its keys
  const Json whole = {
      {"rope_parameters",
       {{"full_attention", {{"rope_type", "default"}, {"partial_rotary_factor", 0.5}}},
        {"sliding_attention", {{"rope_type", "default"}}}}}};
  CHECK(key<uint32_t>(form_of("gemma4_text", whole), "rope.dimension_count") == 16);
  CHECK(form_of("gemma4_text", whole).rope_factors == std::vector<float>(8, 1));

  CHECK(problem("gemma4_text", {{"layer_types", types}, {"num_kv_shared_layers", 3}}) ==
        "no error");
  const Json first = {"full_attention",    "sliding_attention", "sliding_attention",
                      "sliding_attention", "sliding_attention", "sliding_attention",
                      "full_attention"};
  refuses("gemma4_text", {{"layer_types", first}, {"num_kv_shared_layers", 1}},
          "num_kv_shared_layers`: layer 6 shares the keys of layer 0, not of 5");
  refuses("gemma4_text", {{"layer_types", types}, {"num_kv_shared_layers", 2}},
          "num_kv_shared_layers`: layer 5 shares the keys of layer 4, not of 3");
  refuses("gemma4_text", {{"layer_types", Json::array_t(7, "full_attention")}},
          "layer_types`: no layer with a window");
  refuses("gemma4_text", {{"num_hidden_layers", 1}}, "num_hidden_layers`: no layer with a window");
  refuses("gemma4_text", {{"hidden_size_per_layer_input", 6}, {"vocab_size_per_layer_input", 60}},
          "vocab_size_per_layer_input`: 60 tokens, and `vocab_size` is 61");
  refuses("gemma4_text", {{"attention_bias", true}}, "attention_bias`: a bias");
  // Before anything of that size is made.
  CHECK(problem("gemma4_text", {{"global_head_dim", 1000000000}}).find("up to 65536") !=
        std::string::npos);
}

TEST_CASE("Gemma 4: experts beside the MLP") {
  const Json change = {{"enable_moe_block", true},
                       {"num_experts", 3},
                       {"top_k_experts", 2},
                       {"num_hidden_layers", 2}};
  const auto form = form_of("gemma4_text", change);
  CHECK(key<uint32_t>(form, "expert_count") == 3);
  CHECK(key<uint32_t>(form, "expert_used_count") == 2);
  CHECK(key<uint32_t>(form, "expert_feed_forward_length") == 24);
  CHECK(key<uint32_t>(form, "feed_forward_length") == 40);
  const auto model = model_of(config_of("gemma4_text", change));
  const auto tensors = made(*model, form);
  const std::string own = "model.layers.1.", block = "blk.1.";
  const std::pair<const char*, const char*> same[] = {
      {"ffn_gate_inp.weight", "router.proj.weight"},
      {"ffn_gate_inp.scale", "router.scale"},
      {"ffn_down_exps.scale", "router.per_expert_scale"},
      {"post_ffw_norm_1.weight", "post_feedforward_layernorm_1.weight"},
      {"post_ffw_norm_2.weight", "post_feedforward_layernorm_2.weight"},
      {"pre_ffw_norm_2.weight", "pre_feedforward_layernorm_2.weight"},
      {"ffn_down.weight", "mlp.down_proj.weight"}};
  for (const auto& [gguf, parameter] : same) {
    CAPTURE(std::string(gguf));
    CHECK(at::equal(tensors.at(block + gguf), value_of(*model, own + parameter)));
  }
  for (int64_t e = 0; e < 3; ++e) {
    const at::Tensor both = value_of(*model, str(own, "experts.", e, ".gate_up_proj.weight"));
    CHECK(at::equal(tensors.at(block + "ffn_gate_exps.weight")[e], both.narrow(0, 0, 24)));
    CHECK(at::equal(tensors.at(block + "ffn_up_exps.weight")[e], both.narrow(0, 24, 24)));
    CHECK(at::equal(tensors.at(block + "ffn_down_exps.weight")[e],
                    value_of(*model, str(own, "experts.", e, ".down_proj.weight"))));
  }
  // Routers and vectors stay float32.
  for (const auto& [name, view] : models::gguf_tensors(*model, form, at::kBFloat16)) {
    CAPTURE(name);
    const bool vector = view.shape.size() < 2;
    CHECK((view.dtype == DType::kFloat32) ==
          (vector || name.find("ffn_gate_inp") != std::string::npos));
  }
}
