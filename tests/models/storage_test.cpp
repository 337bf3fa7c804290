// Frozen weights of few bits: what is computed with them is what the float32 model of their values
// computes, to the bit, and NF4 is bitsandbytes'.
#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/base/json.h"
#include "temper/generate/score.h"
#include "temper/models/adapters/adapter.h"
#include "temper/models/adapters/adapter_files.h"
#include "temper/models/files/directory.h"
#include "temper/models/files/load.h"
#include "temper/models/files/stream.h"
#include "temper/models/weight_cache.h"
#include "temper/ops/native/kernels/quantized.h"
#include "temper/ops/weight.h"
#include "tests/models/golden.h"

using namespace temper;
using ops::WeightFormat;
namespace fs = std::filesystem;

namespace {

const models::Storage kNf4{WeightFormat::kFloat32, WeightFormat::kNf4};
const models::Storage kFile{.file = true};
const models::Storage kInt8{WeightFormat::kFloat32, WeightFormat::kInt8};

Sequences sequences() {
  return read_json_file(golden_model("qwen3/expected.json"))["sequences"].get<Sequences>();
}

std::vector<float> scores_of_sequences(models::CausalLM& model) {
  std::vector<float> all;
  for (const auto& tokens : sequences()) {
    const auto scores = generate::score(model, {{tokens, 1}});
    all.insert(all.end(), scores[0].logprobs.begin(), scores[0].logprobs.end());
  }
  return all;
}

// The float32 model of another one's values.
std::unique_ptr<models::CausalLM> values_of(const std::string& name, models::CausalLM& quantized) {
  auto model = models::load_model(golden_model(name));
  std::map<std::string, at::Tensor> values;
  quantized.each_parameter([&](const std::string& parameter, nn::Parameter& p) {
    values[parameter] = ops::read(p.stored());
  });
  model->each_parameter([&](const std::string& parameter, nn::Parameter& p) {
    p.set_value(values.at(parameter).clone());
  });
  return model;
}

int64_t quantized_parameters(models::CausalLM& model) {
  int64_t count = 0;
  model.each_parameter(
      [&](const std::string&, nn::Parameter& p) { count += ops::is_quantized(p.format()); });
  return count;
}

// All but the head.
int64_t linear_layers(models::CausalLM& model) {
  int64_t count = 0;
  model.visit({.linear = [&](const std::string&, nn::Linear&) { ++count; },
               .lm_head = [](const std::string&, nn::LmHead&) {}});
  return count;
}

// A directory whose matrices are all in bitsandbytes' nf4.
void write_in_nf4(const std::string& from, const std::string& to) {
  fs::create_directories(to);
  fs::copy_file(from + "/config.json", to + "/config.json", fs::copy_options::overwrite_existing);
  const TensorMap plain = read_safetensors(from + "/model.safetensors");
  TensorMap tensors;
  std::vector<at::Tensor> memory;
  std::vector<std::string> states;
  states.reserve(plain.size());  // views point into them
  for (const auto& [name, view] : plain) {
    if (view.shape.size() != 2) {
      tensors[name] = view;
      continue;
    }
    const at::Tensor values = models::to_tensor(view, at::kFloat);
    const int64_t count = values.numel();
    at::Tensor code = at::zeros({(count + 1) / 2 * 2}, at::kByte),
               absmax = at::empty({(count + 63) / 64}, at::kFloat);
    kernels::quantize_nf4(values.const_data_ptr<float>(), count, code.mutable_data_ptr<uint8_t>(),
                          absmax.mutable_data_ptr<float>());
    const at::Tensor pairs = code.view({-1, 2}),
                     both = pairs.select(1, 0).bitwise_left_shift(4).bitwise_or(pairs.select(1, 1));
    states.push_back(Json{{"shape", view.shape}, {"blocksize", 64}}.dump());
    for (const auto& [suffix, x] :
         {std::pair{"", both.view({-1, 1})},
          {".absmax", absmax},
          {".quant_map",
           at::tensor(at::ArrayRef<float>(ops::kNf4Values.data(), 16), at::kFloat)}}) {
      memory.push_back(x.contiguous());
      tensors[name + suffix] = models::to_view(memory.back());
    }
    tensors[name + ".quant_state.bitsandbytes__nf4"] = bytes_view(states.back());
  }
  write_safetensors(to + "/model.safetensors", tensors);
}

struct CacheDirectory {
  explicit CacheDirectory(const std::string& path) {
    ::setenv("TEMPER_CACHE_DIR", path.c_str(), 1);
  }
  ~CacheDirectory() { ::setenv("TEMPER_CACHE_DIR", "", 1); }
};

}  // namespace

TEST_CASE("a model of int8 or nf4 computes what the float32 model of its values computes") {
  std::vector<std::string> names = built_in_families();
  names.push_back("gemma4_text_moe");
  for (const std::string& name : names)
    for (const models::Storage& storage : {kInt8, kNf4}) {
      CAPTURE(name);
      const auto model = models::load_model(golden_model(name), storage);
      CHECK(quantized_parameters(*model) == linear_layers(*model));
      const auto plain = values_of(name, *model);
      CHECK(quantized_parameters(*plain) == 0);
      CHECK(scores_of_sequences(*model) == scores_of_sequences(*plain));
      CHECK(scores_of_sequences(*model) !=
            scores_of_sequences(*models::load_model(golden_model(name))));
    }
}

TEST_CASE("an adapter over nf4 has the gradients of one over its values, and merges into them") {
  const auto model = models::load_model(golden_model("gemma2"), kNf4),
             plain = values_of("gemma2", *model);
  std::vector<std::vector<at::Tensor>> gradients;
  for (models::CausalLM* of : {model.get(), plain.get()}) {
    models::add_lora(*of, {.rank = 3, .alpha = 6}, 11);
    of->each_parameter([](const std::string& name, nn::Parameter& p) {
      if (name.find("lora_B") != std::string::npos) p.set_value(at::full(p.shape(), 0.02));
    });
    auto forest = std::make_shared<Forest>();
    forest->add_root(sequences()[0]);
    std::vector<int64_t> rows;
    std::vector<int64_t> next;
    for (size_t i = 0; i + 1 < sequences()[0].size(); ++i) {
      rows.push_back(static_cast<int64_t>(i));
      next.push_back(sequences()[0][i + 1]);
    }
    of->token_logp(of->forward({.forest = forest}), rows, next).logp.sum().backward();
    gradients.emplace_back();
    of->each_parameter([&](const std::string&, nn::Parameter& p) {
      if (p.trainable()) gradients.back().push_back(p.value().grad());
    });
  }
  REQUIRE(gradients[0].size() == gradients[1].size());
  REQUIRE(!gradients[0].empty());
  for (size_t i = 0; i < gradients[0].size(); ++i)
    CHECK(at::equal(gradients[0][i], gradients[1][i]));
  models::merge_adapters(*model);
  models::merge_adapters(*plain);
  CHECK(quantized_parameters(*model) == 0);
  CHECK(scores_of_sequences(*model) == scores_of_sequences(*plain));
}

TEST_CASE("nf4's codes and scales are bitsandbytes'") {
  const Json json = read_json_file(golden_path("quantization.json"));
  const auto map = json["map"].get<std::vector<float>>();
  for (size_t i = 0; i < 256; ++i)
    CHECK(kernels::dynamic_map_values()[i] == doctest::Approx(map[i]).epsilon(1e-6));
  for (const Json& c : json["cases"]) {
    std::vector<float> values = c["values"].get<std::vector<float>>();
    const std::string codes = c["codes"].get<std::string>();
    for (uint32_t i = 0; values.size() < codes.size(); ++i)
      values.push_back(static_cast<float>((i * 2654435761u) >> 8) / 16777216.0f - 0.5f);
    std::vector<uint8_t> found(values.size());
    std::vector<float> absmax((values.size() + 63) / 64);
    kernels::quantize_nf4(values.data(), static_cast<int64_t>(values.size()), found.data(),
                          absmax.data());
    for (size_t i = 0; i < codes.size(); ++i) CHECK("0123456789abcdef"[found[i]] == codes[i]);
    CHECK(absmax == c["absmax"].get<std::vector<float>>());
    kernels::quantize_absmax(absmax.data(), static_cast<int64_t>(absmax.size()));
    const auto expected = c["double_absmax"].get<std::vector<float>>();
    for (size_t i = 0; i < absmax.size(); ++i)
      CHECK(absmax[i] == doctest::Approx(expected[i]).epsilon(1e-6));
  }
}

TEST_CASE("a directory that bitsandbytes wrote is read, in nf4 and in float32 alike") {
  const auto kept = models::load_model(golden_model("qwen3_nf4"), kNf4),
             read = models::load_model(golden_model("qwen3_nf4"));
  CHECK(quantized_parameters(*kept) == 7 * kept->num_layers);
  CHECK(quantized_parameters(*read) == 0);
  const std::vector<float> found = scores_of_sequences(*kept);
  CHECK(found == scores_of_sequences(*read));
  const at::Tensor expected = models::to_tensor(
      read_safetensors(golden_model("qwen3_nf4/expected.safetensors")).at("logp"), at::kFloat);
  REQUIRE(static_cast<int64_t>(found.size()) == expected.numel());
  for (size_t i = 0; i < found.size(); ++i)
    CHECK(std::abs(found[i] - expected.const_data_ptr<float>()[i]) < 2e-6f);
}

TEST_CASE("what a directory holds in nf4 stays so in the storage `file`, and nothing else") {
  const auto kept = models::load_model(golden_model("qwen3_nf4"), kFile),
             asked = models::load_model(golden_model("qwen3_nf4"), kNf4);
  CHECK(quantized_parameters(*kept) == quantized_parameters(*asked));
  CHECK(scores_of_sequences(*kept) == scores_of_sequences(*asked));
  CHECK(quantized_parameters(*models::load_model(golden_model("qwen3"), kFile)) == 0);
  const auto held = models::held_matrices(golden_model("qwen3_nf4"));
  CHECK(static_cast<int64_t>(held.size()) == quantized_parameters(*kept));
  for (const auto& [name, format] : held) CHECK((format == WeightFormat::kNf4));
}

TEST_CASE("embedding and head that a directory holds in nf4 compute as their values") {
  const Directory folder("whole_nf4");
  for (const char* name : {"qwen3", "llama"}) {  // the head is tied, and is not
    CAPTURE(name);
    write_in_nf4(golden_model(name), folder.path);
    const auto kept = models::load_model(folder.path, kFile),
               read = models::load_model(folder.path);
    const auto& head = kept->head_weight();
    CHECK((head.format() == WeightFormat::kNf4));
    CHECK((kept->body().embedding().weight.format() == WeightFormat::kNf4));
    CHECK(quantized_parameters(*read) == 0);
    CHECK(scores_of_sequences(*kept) == scores_of_sequences(*read));
    const auto stream = models::stream_model(folder.path, "", kFile);
    CHECK(scores_of_sequences(*stream.model) == scores_of_sequences(*read));
    // An adapter that brings an embedding of its own trains a float32 copy of it.
    const models::LoraConfig lora{.rank = 3, .alpha = 6, .modules_to_save = {"embed_tokens"}};
    models::add_lora(*kept, lora, 11);
    models::add_lora(*read, lora, 11);
    CHECK((kept->body().embedding().weight.format() == WeightFormat::kFloat32));
    CHECK(scores_of_sequences(*kept) == scores_of_sequences(*read));
    models::save_adapter(*kept, lora, folder.path, folder.path + "/adapter");
    const auto format = models::adapter_base_format(folder.path + "/adapter");
    REQUIRE(format.has_value());
    CHECK(format->dtype == "float32");
    models::remove_adapter(*kept);
    CHECK((kept->body().embedding().weight.format() == WeightFormat::kNf4));
  }
}

TEST_CASE("codes that bitsandbytes made are mapped by the second start" *
          doctest::test_suite("exact")) {
  const Directory folder("cache_nf4");
  const CacheDirectory cache(folder.path);
  const auto first = models::load_model(golden_model("qwen3_nf4"), kNf4),
             second = models::load_model(golden_model("qwen3_nf4"), kNf4);
  CHECK(quantized_parameters(*second) == quantized_parameters(*first));
  CHECK(scores_of_sequences(*second) == scores_of_sequences(*first));
}

TEST_CASE("other quantizers are refused by name") {
  const Directory folder("others");
  Json config = read_json_file(golden_model("qwen3/config.json"));
  for (const char* method :
       {"hqq", "aqlm", "auto-round", "mxfp4", ""}) {  // one is another family's
    config["quantization_config"] = {{"quant_method", method}};
    write_file_atomic(folder.path + "/config.json", config.dump());
    CHECK_THROWS_WITH_AS(models::load_model(folder.path), doctest::Contains(method), ConfigError);
  }
}

TEST_CASE("damaged 4-bit files are refused with the tensor's name") {
  const Directory folder("damaged");
  fs::copy_file(golden_model("qwen3_nf4/config.json"), folder.path + "/config.json");
  const TensorMap whole = read_safetensors(golden_model("qwen3_nf4/model.safetensors"));
  const std::string name = "model.layers.0.self_attn.q_proj.weight";
  const auto refused = [&](const std::string& tensor, std::optional<TensorView> instead,
                           const std::string& message) {
    TensorMap tensors = whole;
    if (instead)
      tensors[tensor] = *instead;
    else
      tensors.erase(tensor);
    write_safetensors(folder.path + "/model.safetensors", tensors);
    CAPTURE(tensor);
    CHECK_THROWS_WITH_AS(models::load_model(folder.path), doctest::Contains(message.c_str()),
                         Error);
  };
  const std::string state = name + ".quant_state.bitsandbytes__nf4";
  refused(name + ".absmax", std::nullopt, name + ".absmax");
  refused(name + ".nested_absmax", std::nullopt, name + ".nested_absmax");
  refused(name + ".quant_map", models::to_view(at::zeros({16})), "is not NF4's");
  refused(name, bytes_view("short"), "bytes of codes");
  refused(state, bytes_view("{"), state);
  // Scales that say of themselves that they are in 4 bits.
  TensorMap nested = whole;
  nested[name + ".absmax.quant_state.bitsandbytes__nf4"] =
      bytes_view(R"({"shape": [1, 2], "blocksize": 64})");
  nested[name + ".absmax"] = bytes_view("a");
  write_safetensors(folder.path + "/model.safetensors", nested);
  CHECK_THROWS_WITH_AS(models::load_model(folder.path), doctest::Contains("in 4 bits itself"),
                       DataError);
  refused(state, bytes_view(R"({"shape": [1000000, 1000000], "blocksize": 64})"), "bytes of codes");
  refused(state, bytes_view(R"({"shape": [48, 24], "blocksize": 128})"), "blocks of other than 64");
}

TEST_CASE("a second start maps the codes of the first, and a damaged cache is made anew" *
          doctest::test_suite("exact")) {
  const Directory folder("cache");
  const CacheDirectory cache(folder.path);
  const auto first = models::load_model(golden_model("qwen3"), kNf4);
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder.path))
    if (entry.is_regular_file()) files.push_back(entry.path().string());
  REQUIRE(files.size() == 1);
  const std::string written = read_file(files[0]);
  const auto second = models::load_model(golden_model("qwen3"), kNf4);
  CHECK(scores_of_sequences(*second) == scores_of_sequences(*first));
  MappedFiles weights;
  weights.add(MappedFiles::look_at(golden_model("qwen3/model.safetensors")));
  CHECK(models::WeightCache(weights, ops::WeightFormat::kNf4).read().size() ==
        static_cast<size_t>(7 * first->num_layers));
  CHECK(models::WeightCache(weights, ops::WeightFormat::kInt8).read().empty());
  for (const std::string& damaged : {written.substr(0, written.size() / 2), std::string("{}")}) {
    fs::remove(files[0]);
    write_file_atomic(files[0], damaged);
    CHECK(scores_of_sequences(*models::load_model(golden_model("qwen3"), kNf4)) ==
          scores_of_sequences(*first));
    CHECK(read_file(files[0]) == written);
  }
}

TEST_CASE("a weight with values that are not finite is not quantized") {
  at::Tensor values = at::zeros({4, 64});
  values[2][5] = std::nan("");
  for (const ops::WeightFormat code : {ops::WeightFormat::kNf4, ops::WeightFormat::kInt8})
    CHECK_THROWS_AS(ops::quantize(values, code), DataError);
}
