// Models as llama.cpp's architectures read them: names, shapes and values. That llama.cpp computes
// the same is shown by tools/check_gguf.py.
#include "temper/models/gguf/gguf.h"

#include <algorithm>
#include <set>

#include "temper/base/file.h"
#include "temper/models/sparse_mlp.h"
#include "tests/golden.h"
#include "tests/models/gguf_tiny.h"

using namespace gguf_tiny;
using tiny::Folder;

namespace {

using Shapes = std::map<std::string, std::vector<int64_t>>;

std::vector<std::string> norms_of(const std::string& family) {
  const auto is = [&](const std::set<std::string>& these) { return these.contains(family); };
  if (is({"olmo2", "olmo3", "exaone4"})) return {"post_attention_norm", "post_ffw_norm"};
  if (is({"gemma2", "gemma3_text", "glm4"}))
    return {"attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"};
  if (is({"seed_oss", "glm4_moe", "gpt_oss"})) return {"attn_norm", "post_attention_norm"};
  if (is({"cohere2"})) return {"attn_norm"};
  return {"attn_norm", "ffn_norm"};
}

void expect_attention(const models::DecoderConfig& c, const std::string& block, Shapes& shapes) {
  const int64_t kv = 8 * c.attention.num_kv_heads;
  shapes[block + "attn_output.weight"] = {32, 32};
  if (c.attention.joined_qkv) {
    shapes[block + "attn_qkv.weight"] = {32 + 2 * kv, 32};
  } else {
    shapes[block + "attn_q.weight"] = {32, 32};
    shapes[block + "attn_k.weight"] = shapes[block + "attn_v.weight"] = {kv, 32};
  }
  if (c.attention.qkv_bias) {
    shapes[block + "attn_q.bias"] = {32};
    shapes[block + "attn_k.bias"] = shapes[block + "attn_v.bias"] = {kv};
  }
  if (c.attention.o_bias) shapes[block + "attn_output.bias"] = {32};
  if (c.attention.sinks) shapes[block + "attn_sinks.weight"] = {4};
  if (!c.attention.qk_norm) return;
  const bool whole = c.attention.qk_norm_is_whole;
  shapes[block + "attn_q_norm.weight"] = {whole ? 32 : 8};
  shapes[block + "attn_k_norm.weight"] = {whole ? kv : 8};
}

void expect_experts(const models::SparseConfig& c, const std::string& block, Shapes& shapes) {
  shapes[block + "ffn_gate_inp.weight"] = {3, 32};
  shapes[block + "ffn_gate_exps.weight"] = {3, c.width, 32};
  shapes[block + "ffn_up_exps.weight"] = {3, c.width, 32};
  shapes[block + "ffn_down_exps.weight"] = {3, 32, c.width};
  if (c.correction) shapes[block + "exp_probs_b.bias"] = {3};
  if (c.router_bias) shapes[block + "ffn_gate_inp.bias"] = {3};
  if (c.expert_bias) {
    shapes[block + "ffn_gate_exps.bias"] = shapes[block + "ffn_up_exps.bias"] = {3, c.width};
    shapes[block + "ffn_down_exps.bias"] = {3, 32};
  }
  if (c.shared_width == 0) return;
  shapes[block + "ffn_gate_shexp.weight"] =
      shapes[block + "ffn_up_shexp.weight"] = {c.shared_width, 32};
  shapes[block + "ffn_down_shexp.weight"] = {32, c.shared_width};
}

Shapes expected_of(const std::string& family, const models::DecoderConfig& c) {
  Shapes shapes = {{"token_embd.weight", {61, 32}}, {"output_norm.weight", {32}}};
  if (!c.tie_word_embeddings) shapes["output.weight"] = {61, 32};
  for (const size_t layer : {0, 1}) {
    const std::string block = str("blk.", layer, ".");
    for (const std::string& norm : norms_of(family)) shapes[block + norm + ".weight"] = {32};
    expect_attention(c, block, shapes);
    if (c.sparse && c.sparse->layers[layer]) {
      expect_experts(*c.sparse, block, shapes);
    } else {
      shapes[block + "ffn_up.weight"] = {c.joined_mlp ? 80 : 40, 32};
      if (!c.joined_mlp) shapes[block + "ffn_gate.weight"] = {40, 32};
      shapes[block + "ffn_down.weight"] = {32, 40};
    }
  }
  return shapes;
}

bool is_float32(const std::string& name, size_t dimensions) {
  return dimensions < 2 || name.ends_with(".bias") ||
         name.find("ffn_gate_inp") != std::string::npos;
}

}  // namespace

TEST_CASE("every family's tensors have the names and shapes that llama.cpp asks for") {
  for (const std::string& family : gguf_families()) {
    if (is_own(family)) continue;
    CAPTURE(family);
    const Json config = config_of(family, {{"num_hidden_layers", 2}});
    const auto model = model_of(config);
    const models::DecoderConfig c = models::families().find(family).config(parsed(config));
    Shapes found;
    for (const auto& [name, view] : models::gguf_tensors(*model, form_of(family), at::kBFloat16)) {
      found[name] = view.shape;
      CHECK(view.dtype ==
            (is_float32(name, view.shape.size()) ? DType::kFloat32 : DType::kBFloat16));
    }
    CHECK(found == expected_of(family, c));
  }
}

TEST_CASE("rows of q and k lie in pairs where the architecture rotates these") {
  for (const std::string& family : gguf_families()) {
    if (is_own(family) || family == "phi3") continue;  // has joined projections
    CAPTURE(family);
    const models::Family& entry = models::families().find(family);
    const bool pairs = std::set<std::string>{"llama",   "mistral",    "mixtral",   "granite",
                                             "smollm3", "granitemoe", "ministral3"}
                           .contains(family);
    const Json change = {{"attention_bias", entry.gguf->output_bias}};
    const auto model = model_of(config_of(family, change));
    const auto tensors = made(*model, form_of(family, change));
    const std::string layer = "model.layers.3.self_attn.";
    const at::Tensor q = value_of(*model, layer + "q_proj.weight"),
                     k = value_of(*model, layer + "k_proj.weight");
    for (int64_t head = 0; head < 4; ++head)
      for (int64_t i = 0; i < 4; ++i)
        for (const int64_t half : {0, 1}) {
          const int64_t from = head * 8 + half * 4 + i, to = pairs ? head * 8 + 2 * i + half : from;
          CHECK(at::equal(tensors.at("blk.3.attn_q.weight")[to], q[from]));
          if (head < 2) CHECK(at::equal(tensors.at("blk.3.attn_k.weight")[to], k[from]));
          if (entry.gguf->output_bias)
            CHECK(at::equal(tensors.at("blk.3.attn_q.bias")[to],
                            value_of(*model, layer + "q_proj.bias")[from]));
        }
    CHECK(at::equal(tensors.at("blk.3.attn_v.weight"), value_of(*model, layer + "v_proj.weight")));
    const at::Tensor norm = value_of(*model, "model.norm.weight");
    const bool plus_one = entry.config(parsed(config_of(family))).attention.norm_one_plus;
    CHECK(at::equal(tensors.at("output_norm.weight"), plus_one ? norm + 1 : norm));
  }
}

TEST_CASE("a scale of queries that llama.cpp has no key for is multiplied into q") {
  const Json change = {{"query_pre_attn_scalar", 2}};  // twice llama.cpp's 1 / sqrt(8)
  const auto gemma2 = model_of(config_of("gemma2"));
  CHECK(at::equal(made(*gemma2, form_of("gemma2", change)).at("blk.0.attn_q.weight"),
                  2 * value_of(*gemma2, "model.layers.0.self_attn.q_proj.weight")));
  const auto gemma3 = model_of(config_of("gemma3_text"));
  const auto tensors = made(*gemma3, form_of("gemma3_text", change));
  CHECK(at::equal(tensors.at("blk.0.attn_q_norm.weight"),
                  2 * (1 + value_of(*gemma3, "model.layers.0.self_attn.q_norm.weight"))));
  CHECK(at::equal(tensors.at("blk.0.attn_q.weight"),
                  value_of(*gemma3, "model.layers.0.self_attn.q_proj.weight")));
  // The largest Gemma 2 and 3 are scaled by hidden_size / heads, which llama.cpp knows by their
  // number of layers.
  const Json large = {{"num_hidden_layers", 46}, {"head_dim", 16}, {"query_pre_attn_scalar", 8}};
  CHECK(form_of("gemma2", large).query_scale == 1);
  CHECK(form_of("gemma2", {{"head_dim", 16}}).query_scale == doctest::Approx(std::sqrt(2.0)));
}

TEST_CASE("the experts of a layer are one tensor, gate and up apart") {
  for (const std::string family : {"qwen3_moe", "gpt_oss"}) {
    CAPTURE(family);
    const auto model = model_of(config_of(family));
    const auto tensors = made(*model, form_of(family));
    for (int64_t expert = 0; expert < 3; ++expert) {
      const std::string own = str("model.layers.5.mlp.experts.", expert, ".");
      const at::Tensor both = value_of(*model, own + "gate_up_proj.weight");
      const int64_t width = both.size(0) / 2;
      const bool alternate = family == "gpt_oss";
      for (int64_t row = 0; row < width; ++row) {
        CHECK(at::equal(tensors.at("blk.5.ffn_gate_exps.weight")[expert][row],
                        both[alternate ? 2 * row : row]));
        CHECK(at::equal(tensors.at("blk.5.ffn_up_exps.weight")[expert][row],
                        both[alternate ? 2 * row + 1 : width + row]));
      }
      CHECK(at::equal(tensors.at("blk.5.ffn_down_exps.weight")[expert],
                      value_of(*model, own + "down_proj.weight")));
      if (alternate)
        CHECK(at::equal(tensors.at("blk.5.ffn_up_exps.bias")[expert],
                        value_of(*model, own + "gate_up_proj.bias").slice(0, 1, 2 * width, 2)));
    }
  }
}

TEST_CASE("longrope's factors are tensors, its scale of cosines a key") {
  const Json change = {{"max_position_embeddings", 128},
                       {"original_max_position_embeddings", 64},
                       {"rope_scaling",
                        {{"type", "longrope"},
                         {"short_factor", {1.0, 1.5, 2.0, 2.5}},
                         {"long_factor", {3.0, 3.5, 4.0, 4.5}}}}};
  const auto form = form_of("phi3", change);
  CHECK(key<uint32_t>(form, "rope.scaling.original_context_length") == 64);
  CHECK(*key<float>(form, "rope.scaling.attn_factor") ==
        doctest::Approx(std::sqrt(1 + std::log(2.0) / std::log(64.0))));
  const auto tensors = made(*model_of(config_of("phi3", change)), form);
  CHECK(at::equal(tensors.at("rope_factors_short.weight"), at::tensor({1.0f, 1.5f, 2.0f, 2.5f})));
  CHECK(at::equal(tensors.at("rope_factors_long.weight"), at::tensor({3.0f, 3.5f, 4.0f, 4.5f})));
}

TEST_CASE("a convolution is a layer without heads of keys") {
  const auto form = form_of("lfm2", {{"conv_L_cache", 4}});
  CHECK(key<GgufArray>(form, "attention.head_count_kv") ==
        GgufArray(std::vector<uint32_t>{0, 2, 0, 0, 2, 0, 0}));
  CHECK(key<uint32_t>(form, "shortconv.l_cache") == 4);
  const auto model = model_of(config_of("lfm2", {{"conv_L_cache", 4}}));
  const auto tensors = made(*model, form);
  CHECK(at::equal(tensors.at("blk.0.shortconv.conv.weight"),
                  value_of(*model, "model.layers.0.conv.conv.weight").squeeze(1)));
  CHECK(tensors.at("blk.0.shortconv.in_proj.weight").sizes() == at::IntArrayRef({96, 32}));
  CHECK(tensors.at("blk.0.shortconv.out_proj.weight").sizes() == at::IntArrayRef({32, 32}));
  CHECK(tensors.contains("blk.1.attn_q_norm.weight"));
  CHECK(!tensors.contains("blk.0.attn_q.weight"));
  CHECK(tensors.contains("token_embd_norm.weight"));
  CHECK(problem("lfm2", {{"conv_bias", true}}).find("`conv_bias`: a bias") != std::string::npos);
}

TEST_CASE("a saved file reads back with the model's values, rounded once") {
  const Folder folder;
  const std::string directory = folder / "model";
  std::filesystem::create_directories(directory);
  write_file_atomic(directory + "/config.json", config_of("gemma2", {{"eos_token_id", 2}}).dump());
  const auto model = model_of(config_of("gemma2"));
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const models::GgufHeader header = models::gguf_header(directory, type);
    const std::string path = folder / str("model-", static_cast<int>(type), ".gguf");
    models::save_gguf(*model, header, path, type);
    const GgufFile file = read_gguf(path);
    CHECK(std::get<std::string>(*file.find("general.architecture")) == "gemma2");
    CHECK(std::get<std::string>(*file.find("general.name")) == "model");
    CHECK(std::get<std::string>(*file.find("tokenizer.ggml.model")) == "none");
    CHECK(std::get<uint32_t>(*file.find("general.file_type")) == (type == at::kFloat  ? 0
                                                                  : type == at::kHalf ? 1
                                                                                      : 32));
    const auto read = [&](const std::string& name) {
      return models::to_tensor(file.tensors.at(name), at::kFloat);
    };
    CHECK(
        at::equal(read("blk.6.ffn_down.weight"),
                  value_of(*model, "model.layers.6.mlp.down_proj.weight").to(type).to(at::kFloat)));
    CHECK(at::equal(read("blk.6.ffn_norm.weight"),
                    1 + value_of(*model, "model.layers.6.pre_feedforward_layernorm.weight")));
  }
}

TEST_CASE("a file of a model that reads images says that they are left out") {
  const auto says_so = [](const std::string& directory) {
    const models::GgufHeader header = models::gguf_header(directory, at::kFloat);
    return std::ranges::count_if(header.notes, [](const std::string& note) {
      return note.starts_with("the vision tower is left out");
    });
  };
  CHECK(says_so(golden_path("vision/gemma3")) == 1);
  CHECK(says_so(golden_path("models/gemma3_text")) == 0);
}

TEST_CASE("values beyond float16's range are refused, and leave no file") {
  const Folder folder;
  const std::string directory = folder / "model";
  std::filesystem::create_directories(directory);
  write_file_atomic(directory + "/config.json", config_of("qwen3").dump());
  const auto model = model_of(config_of("qwen3"));
  model->each_parameter([](const std::string& name, nn::Parameter& p) {
    if (name == "model.layers.2.mlp.up_proj.weight") p.set_value(70000 * at::ones(p.shape()));
  });
  const std::string path = folder / "model.gguf";
  CHECK_THROWS_WITH_AS(
      models::save_gguf(*model, models::gguf_header(directory, at::kHalf), path, at::kHalf),
      doctest::Contains("`model.layers.2.mlp.up_proj.weight` has values beyond float16's range"),
      RunError);
  CHECK(!std::filesystem::exists(path));
  models::save_gguf(*model, models::gguf_header(directory, at::kBFloat16), path, at::kBFloat16);
}
