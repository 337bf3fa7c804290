// Models as llama.cpp's architectures read them: keys, names, shapes and values. That llama.cpp
// computes the same is shown by tools/check_gguf.py.
#include "temper/models/gguf.h"

#include <doctest/doctest.h>

#include <set>

#include "temper/base/file.h"
#include "temper/models/decoder.h"
#include "temper/models/init.h"
#include "tests/train/tiny.h"

using namespace temper;
using tiny::Folder;

namespace {

// Those that llama.cpp has an architecture for.
std::vector<std::string> gguf_families() {
  std::vector<std::string> names;
  for (const auto& family : models::families().list())
    if (family.value.gguf) names.push_back(family.name);
  return names;
}

Json config_of(const std::string& family, const Json& changes = Json::object()) {
  Json config = {{"model_type", family},      {"vocab_size", 61},
                 {"hidden_size", 32},         {"intermediate_size", 40},
                 {"num_hidden_layers", 7},    {"num_attention_heads", 4},
                 {"num_key_value_heads", 2},  {"head_dim", 8},
                 {"sliding_window", 5},       {"max_position_embeddings", 128},
                 {"query_pre_attn_scalar", 8}};
  if (family == "mistral") config["sliding_window"] = nullptr;  // llama.cpp's llama has none
  config.update(changes);
  return config;
}

models::HfConfig parsed(const Json& config) { return models::HfConfig::parse(config, "config"); }

models::GgufForm form_of(const std::string& family, const Json& changes = Json::object()) {
  return models::gguf_form(parsed(config_of(family, changes)));
}
std::string problem(const std::string& family, const Json& changes) {
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

std::unique_ptr<models::CausalLM> model_of(const Json& config) {
  auto model = models::init_model(parsed(config), 3);
  uint64_t n = 0;
  model->each_parameter([&](const std::string&, nn::Parameter& p) {  // no constants
    p.own();
    p.set_value(p.value().detach() +
                0.01 * at::arange(p.value().numel()).reshape(p.shape()).remainder(17 + ++n % 5));
  });
  return model;
}

std::map<std::string, at::Tensor> made(models::CausalLM& model, const models::GgufForm& form,
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

at::Tensor value_of(models::CausalLM& model, const std::string& name) {
  at::Tensor found;
  model.each_parameter([&](const std::string& own, nn::Parameter& p) {
    if (own == name) found = p.float_value().detach().clone();
  });
  REQUIRE_MESSAGE(found.defined(), name);
  return found;
}

}  // namespace

TEST_CASE("every family's tensors have the names and shapes that llama.cpp asks for") {
  for (const std::string& family : gguf_families()) {
    CAPTURE(family);
    const Json config = config_of(family, {{"num_hidden_layers", 2}});
    const auto model = model_of(config);
    std::map<std::string, std::vector<int64_t>> expected = {{"token_embd.weight", {61, 32}},
                                                            {"output_norm.weight", {32}}};
    const models::DecoderConfig c = models::families().find(family).config(parsed(config));
    if (!c.tie_word_embeddings) expected["output.weight"] = {61, 32};
    for (const std::string block : {"blk.0.", "blk.1."}) {
      expected[block + "attn_norm.weight"] = expected[block + "ffn_norm.weight"] = {32};
      expected[block + "attn_q.weight"] = expected[block + "attn_output.weight"] = {32, 32};
      expected[block + "attn_k.weight"] = expected[block + "attn_v.weight"] = {16, 32};
      expected[block + "ffn_gate.weight"] = expected[block + "ffn_up.weight"] = {40, 32};
      expected[block + "ffn_down.weight"] = {32, 40};
      if (c.attention.qkv_bias) {
        expected[block + "attn_q.bias"] = {32};
        expected[block + "attn_k.bias"] = expected[block + "attn_v.bias"] = {16};
      }
      if (c.attention.qk_norm)
        expected[block + "attn_q_norm.weight"] = expected[block + "attn_k_norm.weight"] = {8};
      if (models::families().find(family).gguf->windows)  // norms after attention and MLP
        expected[block + "post_attention_norm.weight"] =
            expected[block + "post_ffw_norm.weight"] = {32};
    }
    std::map<std::string, std::vector<int64_t>> found;
    for (const auto& [name, view] : models::gguf_tensors(*model, form_of(family), at::kBFloat16)) {
      found[name] = view.shape;
      CHECK(view.dtype == (view.shape.size() < 2 ? DType::kFloat32 : DType::kBFloat16));
    }
    CHECK(found == expected);
  }
}

TEST_CASE("sizes, windows, caps and positions become keys") {
  for (const std::string& family : gguf_families()) {
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
    CHECK(key<uint32_t>(form, "attention.head_count_kv") == 2);
    CHECK(key<uint32_t>(form, "attention.key_length") == 8);
    CHECK(key<uint32_t>(form, "attention.value_length") == 8);
    CHECK(key<uint32_t>(form, "vocab_size") == 61);
    CHECK(key<uint32_t>(form, "rope.dimension_count") == 8);
    CHECK(key<float>(form, "attention.layer_norm_rms_epsilon") == 1e-6f);
    CHECK(key<float>(form, "rope.freq_base") == static_cast<float>(config.rotary.theta));
    CHECK(key<float>(form, "rope.freq_base_swa").has_value() == config.local_rotary.has_value());
    CHECK(key<uint32_t>(form, "attention.sliding_window").has_value() == entry.gguf->windows);
    CHECK(!key<GgufArray>(form, "attention.sliding_window_pattern"));
  }
  CHECK(key<float>(form_of("gemma2"), "attn_logit_softcapping") == 50.0f);
  CHECK(key<float>(form_of("gemma2"), "final_logit_softcapping") == 30.0f);
  const auto pattern = key<GgufArray>(form_of("gemma3_text", {{"sliding_window_pattern", 2}}),
                                      "attention.sliding_window_pattern");
  CHECK(pattern == GgufArray(std::vector<uint32_t>{1, 0, 1, 0, 1, 0, 1}));
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

TEST_CASE("rows of q and k of the architecture llama lie in pairs, and no other's do") {
  for (const std::string& family : gguf_families()) {
    CAPTURE(family);
    const models::Family& entry = models::families().find(family);
    const bool pairs = entry.gguf->interleaved;
    const Json change = {{"attention_bias", pairs}};
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
  CHECK(says(problem("gemma3_text", {{"attn_logit_softcapping", 5.0}}), "attn_logit_softcapping"));
  CHECK(says(problem("llama", {{"hidden_act", "gelu"}}), "hidden_act`: another activation"));
  const auto scaling = [](const Json& value) { return Json{{"rope_scaling", value}}; };
  CHECK(
      says(problem("qwen2", scaling({{"rope_type", "llama3"}, {"factor", 8.0}})), "rope_scaling"));
  CHECK(says(problem("llama", scaling({{"rope_type", "yarn"}, {"factor", 4.0}, {"beta_fast", 8}})),
             "rope_scaling`: yarn with other values"));
  CHECK(says(problem("gemma3_text", scaling({{"rope_type", "yarn"}, {"factor", 4.0}})),
             "rope_scaling`: `rope_type` yarn"));
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
