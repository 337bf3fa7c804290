// Gated delta nets as llama.cpp reads them. That it computes the same is shown by
// tools/check_gguf.py.
#include "tests/models/gguf_tiny.h"

using namespace gguf_tiny;

TEST_CASE("delta nets: keys, names and shapes") {
  for (const std::string family : {"qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"}) {
    CAPTURE(family);
    const bool joined = family == "qwen3_next", mixture = family != "qwen3_5_text";
    const auto form = form_of(family);
    CHECK(form.architecture == (joined ? "qwen3next" : mixture ? "qwen35moe" : "qwen35"));
    CHECK(key<uint32_t>(form, "ssm.conv_kernel") == 4);
    CHECK(key<uint32_t>(form, "ssm.state_size") == 6);
    CHECK(key<uint32_t>(form, "ssm.group_count") == 2);
    CHECK(key<uint32_t>(form, "ssm.time_step_rank") == 4);
    CHECK(key<uint32_t>(form, "ssm.inner_size") == 24);
    CHECK(key<uint32_t>(form, "full_attention_interval") == 4);
    CHECK(!key<GgufArray>(form, "attention.recurrent_layers"));
    CHECK(key<uint32_t>(form, "rope.dimension_count") == 2);
    CHECK(key<uint32_t>(form, "expert_shared_feed_forward_length").has_value() == mixture);
    CHECK(form.notes.empty());
    CHECK(form_of(family, {{"rms_norm_eps", 1e-5}}).notes.size() == 1);

    const Json two = {{"num_hidden_layers", 2},
                      {"layer_types", {"full_attention", "linear_attention"}}};
    CHECK(list<bool>(form_of(family, two), "attention.recurrent_layers") ==
          std::vector<bool>{false, true});
    Shapes expected = {{"token_embd.weight", {61, 32}},
                       {"output_norm.weight", {32}},
                       {"output.weight", {61, 32}},
                       {"blk.0.attn_q.weight", {64, 32}},
                       {"blk.0.attn_k.weight", {16, 32}},
                       {"blk.0.attn_v.weight", {16, 32}},
                       {"blk.0.attn_q_norm.weight", {8}},
                       {"blk.0.attn_k_norm.weight", {8}},
                       {"blk.0.attn_output.weight", {32, 32}},
                       {"blk.1.attn_qkv.weight", {48, 32}},
                       {"blk.1.attn_gate.weight", {24, 32}},
                       {"blk.1.ssm_conv1d.weight", {48, 4}},
                       {"blk.1.ssm_a", {4}},
                       {"blk.1.ssm_dt.bias", {4}},
                       {"blk.1.ssm_norm.weight", {6}},
                       {"blk.1.ssm_out.weight", {32, 24}}};
    if (joined)
      expected["blk.1.ssm_ba.weight"] = {8, 32};
    else
      expected["blk.1.ssm_alpha.weight"] = expected["blk.1.ssm_beta.weight"] = {4, 32};
    for (const std::string block : {"blk.0.", "blk.1."}) {
      expected[block + "attn_norm.weight"] = expected[block + "post_attention_norm.weight"] = {32};
      const std::string end = mixture ? "_shexp.weight" : ".weight";
      const int64_t width = mixture ? 20 : 40;
      expected[block + "ffn_gate" + end] = expected[block + "ffn_up" + end] = {width, 32};
      expected[block + "ffn_down" + end] = {32, width};
      if (!mixture) continue;
      expected[block + "ffn_gate_inp.weight"] = {3, 32};
      expected[block + "ffn_gate_inp_shexp.weight"] = {32};
      expected[block + "ffn_gate_exps.weight"] =
          expected[block + "ffn_up_exps.weight"] = {3, 24, 32};
      expected[block + "ffn_down_exps.weight"] = {3, 32, 24};
    }
    CHECK(shapes_of(family, two) == expected);
    refuses(family, {{"linear_value_head_dim", 8}}, "linear_value_head_dim`: 8 features");
    refuses(family, {{"linear_conv_kernel_dim", 1}}, "linear_conv_kernel_dim`: a convolution of");
    refuses(family, {{"attention_bias", true}}, "attention_bias`: a bias");
  }
  refuses("qwen3_next", {{"mlp_only_layers", {1}}}, "mlp_only_layers`: layers with an MLP");
  refuses("qwen3_next", {{"norm_topk_prob", false}}, "norm_topk_prob`: ");
}

TEST_CASE("delta nets: values as llama.cpp reads them") {
  const auto model = model_of(config_of("qwen3_next"));
  const auto tensors = made(*model, form_of("qwen3_next"));
  const std::string layer = "model.layers.1.linear_attn.";
  // Two key heads, each with a query, a key, two values and two gates of 6 rows.
  const at::Tensor all = value_of(*model, layer + "in_proj_qkvz.weight");
  const auto part = [&](int64_t from, int64_t count) {
    return at::cat({all.narrow(0, from, count), all.narrow(0, 36 + from, count)});
  };
  CHECK(at::equal(tensors.at("blk.1.attn_qkv.weight"),
                  at::cat({part(0, 6), part(6, 6), part(12, 12)})));
  CHECK(at::equal(tensors.at("blk.1.attn_gate.weight"), part(24, 12)));
  CHECK(
      at::equal(tensors.at("blk.1.ssm_ba.weight"), value_of(*model, layer + "in_proj_ba.weight")));
  CHECK(at::equal(tensors.at("blk.1.ssm_a"), -value_of(*model, layer + "A_log").exp()));
  CHECK(at::equal(tensors.at("blk.1.ssm_dt.bias"), value_of(*model, layer + "dt_bias")));
  CHECK(at::equal(tensors.at("blk.1.ssm_conv1d.weight"),
                  value_of(*model, layer + "conv1d.weight").squeeze(1)));
  CHECK(at::equal(tensors.at("blk.1.ssm_norm.weight"), value_of(*model, layer + "norm.weight")));
  CHECK(at::equal(tensors.at("blk.1.attn_norm.weight"),
                  1 + value_of(*model, "model.layers.1.input_layernorm.weight")));
  CHECK(at::equal(tensors.at("blk.3.attn_q_norm.weight"),
                  1 + value_of(*model, "model.layers.3.self_attn.q_norm.weight")));
}

TEST_CASE("delta nets: Qwen 3.5's value heads lie in tiles, the first of each key head first") {
  const auto model = model_of(config_of("qwen3_5_text"));
  const auto tensors = made(*model, form_of("qwen3_5_text"));
  const std::string layer = "model.layers.1.linear_attn.";
  const std::vector<int64_t> heads = {0, 2, 1, 3};
  std::vector<int64_t> rows, after;
  for (const int64_t head : heads)
    for (int64_t i = 0; i < 6; ++i) rows.push_back(6 * head + i);
  for (int64_t i = 0; i < 24; ++i) after.push_back(i);
  for (const int64_t row : rows) after.push_back(24 + row);
  const auto check = [&](const char* own, const char* gguf, const std::vector<int64_t>& order) {
    CAPTURE(own);
    CHECK(at::equal(tensors.at(std::string("blk.1.") + gguf),
                    picked(value_of(*model, layer + own), order)));
  };
  check("in_proj_qkv.weight", "attn_qkv.weight", after);
  check("in_proj_z.weight", "attn_gate.weight", rows);
  check("in_proj_a.weight", "ssm_alpha.weight", heads);
  check("in_proj_b.weight", "ssm_beta.weight", heads);
  check("dt_bias", "ssm_dt.bias", heads);
  CHECK(at::equal(tensors.at("blk.1.ssm_a"),
                  picked(-value_of(*model, layer + "A_log").exp(), heads)));
  CHECK(at::equal(tensors.at("blk.1.ssm_conv1d.weight"),
                  picked(value_of(*model, layer + "conv1d.weight").squeeze(1), after)));
  CHECK(at::equal(tensors.at("blk.1.ssm_out.weight"),
                  picked(value_of(*model, layer + "out_proj.weight").t(), rows).t()));
}

// ggml's interleaved mrope: pair i belongs to section i % 3 while that has pairs left, and to none
// of text's three positions after them.
TEST_CASE("every pair of Qwen 3.5 that rotates belongs to a section of positions") {
  for (const int64_t size : {8, 16, 24, 64, 128, 256}) {
    const Json change = {{"head_dim", size}};
    const auto sections = list<int32_t>(form_of("qwen3_5_text", change), "rope.dimension_sections");
    REQUIRE(sections.has_value());
    REQUIRE(sections->size() == 4);
    const auto& s = *sections;
    CHECK(s[0] + s[1] + s[2] == size / 8);
    CHECK(s[3] == 0);
    for (int64_t pair = 0; pair < size / 8; ++pair)
      CHECK(pair / 3 < s[static_cast<size_t>(pair % 3)]);
  }
  CHECK(list<int32_t>(form_of("qwen3_5_moe_text", {{"head_dim", 256}}),
                      "rope.dimension_sections") == std::vector<int32_t>{11, 11, 10, 0});
  CHECK(!key<GgufArray>(form_of("qwen3_next"), "rope.dimension_sections"));
}
