// gpt-oss's experts in MXFP4: their numbers are those that the format's definition says, and a
// model that keeps them in four bits computes, to the bit, what the one of these numbers does.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <doctest/doctest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "temper/base/file.h"
#include "temper/base/json.h"
#include "temper/generate/score.h"
#include "temper/models/adapters/adapter.h"
#include "temper/models/adapters/adapter_files.h"
#include "temper/models/files/directory.h"
#include "temper/models/files/load.h"
#include "temper/models/files/save.h"
#include "temper/models/files/stream.h"
#include "temper/models/weight_cache.h"
#include "tests/models/golden.h"

using namespace temper;
using ops::WeightFormat;
namespace fs = std::filesystem;

namespace {

constexpr int64_t kHidden = 64, kWidth = 96, kExperts = 3;
const std::string kDown = "model.layers.0.mlp.experts.down_proj";

// A directory with experts in MXFP4, and one with their values in bfloat16.
struct Mxfp4Directories {
  Directory quantized{"mxfp4_codes"}, plain{"mxfp4_plain"};
  TensorMap codes, values;

  Mxfp4Directories() {
    Json config = read_json_file(golden_model("gpt_oss") + "/config.json");
    config["hidden_size"] = kHidden;
    config["intermediate_size"] = kWidth;
    config["num_local_experts"] = kExperts;
    write_file_atomic(plain.path + "/config.json", config.dump());
    const auto model = models::init_model(models::HfConfig::load(plain.path), 3);
    models::save_weights(*model, plain.path, at::kFloat);
    config["quantization_config"] = {{"quant_method", "mxfp4"}};
    write_file_atomic(quantized.path + "/config.json", config.dump());
    codes = values = read_safetensors(plain.path + "/model.safetensors");
    at::manual_seed(4);
    for (const auto& [name, view] : read_safetensors(plain.path + "/model.safetensors"))
      if (name.ends_with("experts.gate_up_proj") || name.ends_with("experts.down_proj"))
        quantize(name, view.shape[1], view.shape[2]);
    write_codes();
    write_safetensors(plain.path + "/values.safetensors", values);
    fs::rename(plain.path + "/values.safetensors", plain.path + "/model.safetensors");
  }

  void write_codes() const { write_safetensors(quantized.path + "/model.safetensors", codes); }

 private:
  // Codes and scales as OCP's Microscaling Formats define them: E2M1(code) 2^(scale - 127).
  void quantize(const std::string& name, int64_t in, int64_t out) {
    const at::Tensor e2m1 = at::tensor(
        {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0});
    const at::Tensor code = at::randint(0, 16, {kExperts, out, in / 32, 16, 2}, at::kLong),
                     scale = at::randint(120, 126, {kExperts, out, in / 32}, at::kLong);
    const at::Tensor value =
        e2m1.index({code}) * (scale - 127).exp2().view({kExperts, out, -1, 1, 1});
    codes.erase(name);
    codes[name + "_blocks"] =
        models::to_view((code.select(4, 0) + 16 * code.select(4, 1)).to(at::kByte));
    codes[name + "_scales"] = models::to_view(scale.to(at::kByte));
    values[name] = models::to_view(
        value.to(at::kBFloat16).view({kExperts, out, in}).transpose(1, 2).contiguous());
  }
};

models::Storage kept_in_mxfp4(WeightFormat others) { return {others, WeightFormat::kMxFp4}; }

Sequences mxfp4_sequences() {
  return read_json_file(golden_model("gpt_oss") + "/expected.json")["sequences"].get<Sequences>();
}

std::vector<float> mxfp4_scores(models::CausalLM& model) {
  std::vector<float> all;
  for (const auto& tokens : mxfp4_sequences()) {
    const auto scores = generate::score(model, {{tokens, 1}});
    all.insert(all.end(), scores[0].logprobs.begin(), scores[0].logprobs.end());
  }
  return all;
}

// How many matrices are kept so, and the bytes of the matrices of experts.
struct Kept {
  int64_t matrices = 0, bytes = 0;
};
Kept kept_of(models::CausalLM& model) {
  Kept kept;
  model.each_parameter([&](const std::string& name, nn::Parameter& p) {
    if (name.find(".experts.") == name.npos || !name.ends_with(".weight")) return;
    kept.matrices += p.format() == WeightFormat::kMxFp4;
    const auto codes = p.stored().quantized;
    kept.bytes += static_cast<int64_t>(codes ? codes->codes.nbytes() + codes->scales.nbytes()
                                             : p.value().nbytes());
  });
  return kept;
}

// The gradients of an adapter on every layer, and all weights with it merged.
std::vector<at::Tensor> adapted(models::CausalLM& model) {
  models::add_lora(model, {.rank = 3, .alpha = 6}, 11);
  model.each_parameter([](const std::string& name, nn::Parameter& p) {
    if (name.find("lora_B") != std::string::npos) p.set_value(at::full(p.shape(), 0.02));
  });
  log_probabilities(model, mxfp4_sequences()).sum().backward();
  std::vector<at::Tensor> out;
  model.each_parameter([&](const std::string&, nn::Parameter& p) {
    if (p.trainable() && p.value().grad().defined()) out.push_back(p.value().grad());
  });
  CHECK(!out.empty());
  models::merge_adapters(model);
  model.each_parameter(
      [&](const std::string&, nn::Parameter& p) { out.push_back(p.float_value().detach()); });
  return out;
}

}  // namespace

TEST_CASE("experts in MXFP4 are read as the bfloat16 ones of the same values") {
  const Mxfp4Directories made;
  const auto read = models::load_model(made.quantized.path),
             expected = models::load_model(made.plain.path);
  CHECK(at::equal(log_probabilities(*read, mxfp4_sequences()),
                  log_probabilities(*expected, mxfp4_sequences())));
  // Written as bfloat16's own form.
  const Directory written("mxfp4_written");
  models::save_weights(*read, written.path, at::kBFloat16);
  const TensorMap again = read_safetensors(written.path + "/model.safetensors");
  for (const auto& [name, view] : made.values)
    if (name.find(".experts.") != std::string::npos && view.dtype == DType::kBFloat16)
      CHECK(at::equal(models::to_tensor(again.at(name), at::kFloat),
                      models::to_tensor(view, at::kFloat)));
  CHECK(models::held_formats(made.quantized.path).contains(WeightFormat::kMxFp4));
  CHECK(models::held_formats(made.plain.path).empty());
}

TEST_CASE("a model with experts in MXFP4 computes what the model of their values computes") {
  const Mxfp4Directories made;
  for (const WeightFormat others : {WeightFormat::kFloat32, WeightFormat::kBFloat16}) {
    CAPTURE(std::string(ops::row_of(others).name));
    const auto kept = models::load_model(made.quantized.path, kept_in_mxfp4(others)),
               plain = models::load_model(made.plain.path, {others, {}});
    CHECK(kept_of(*kept).matrices == 2 * kExperts * kept->num_layers);
    CHECK(kept_of(*plain).matrices == 0);
    CHECK(3 * kept_of(*kept).bytes < 2 * kept_of(*plain).bytes);
    CHECK(mxfp4_scores(*kept) == mxfp4_scores(*plain));
    const auto as_file = models::load_model(made.quantized.path, {.weights = others, .file = true});
    CHECK(kept_of(*as_file).matrices == kept_of(*kept).matrices);
    CHECK(mxfp4_scores(*as_file) == mxfp4_scores(*kept));
    std::map<std::string, at::Tensor> values;
    kept->each_parameter(
        [&](const std::string& name, nn::Parameter& p) { values[name] = p.float_value(); });
    plain->each_parameter([&](const std::string& name, nn::Parameter& p) {
      CAPTURE(name);
      CHECK(at::equal(values.at(name), p.float_value()));
    });
  }
}

TEST_CASE("an adapter over MXFP4 has the gradients of one over its values, and merges into them") {
  const Mxfp4Directories made;
  for (const WeightFormat others : {WeightFormat::kFloat32, WeightFormat::kBFloat16}) {
    CAPTURE(std::string(ops::row_of(others).name));
    const auto kept = adapted(*models::load_model(made.quantized.path, kept_in_mxfp4(others))),
               plain = adapted(*models::load_model(made.plain.path, {others, {}}));
    REQUIRE(kept.size() == plain.size());
    for (size_t i = 0; i < kept.size(); ++i) CHECK(at::equal(kept[i], plain[i]));
  }
}

TEST_CASE("an adapter's file says that its base was in MXFP4, which is the files' own") {
  const Mxfp4Directories made;
  const Directory folder("mxfp4_adapter");
  const auto model =
      models::load_model(made.quantized.path, kept_in_mxfp4(WeightFormat::kBFloat16));
  const models::LoraConfig lora{.rank = 3, .alpha = 6};
  models::add_lora(*model, lora, 11);
  models::save_adapter(*model, lora, made.quantized.path, folder.path);
  const auto format = models::adapter_base_format(folder.path);
  REQUIRE(format.has_value());
  CHECK(format->dtype == "bfloat16");
  CHECK(format->storage == "mxfp4");
  CHECK(!format->is_rounded());
  const models::Storage storage = models::storage_of(*format);
  CHECK(storage.weights == WeightFormat::kBFloat16);
  CHECK((storage.blocks == WeightFormat::kMxFp4));
}

TEST_CASE("a stream of experts in MXFP4 is the model, and writes its values") {
  const Mxfp4Directories made;
  const models::Storage storage = kept_in_mxfp4(WeightFormat::kFloat32);
  const auto whole = models::load_model(made.quantized.path, storage);
  const auto stream = models::stream_model(made.quantized.path, "", storage);
  CHECK(mxfp4_scores(*stream.model) == mxfp4_scores(*whole));
  for (const auto& [name, view] : stream.weights->merged_tensors(at::kFloat)) {
    CAPTURE(name);
    CHECK(at::equal(models::to_tensor(view.make ? view.make() : view, at::kFloat),
                    models::to_tensor(made.values.at(name), at::kFloat)));
  }
}

TEST_CASE("a second start maps the experts in MXFP4 of the first" * doctest::test_suite("exact")) {
  const Mxfp4Directories made;
  const Directory cache("mxfp4_cache");
  ::setenv("TEMPER_CACHE_DIR", cache.path.c_str(), 1);
  const models::Storage storage = kept_in_mxfp4(WeightFormat::kFloat32);
  const auto first = models::load_model(made.quantized.path, storage),
             second = models::load_model(made.quantized.path, storage);
  MappedFiles weights;
  weights.add(MappedFiles::look_at(made.quantized.path + "/model.safetensors"));
  const auto cached = models::WeightCache(weights, ops::WeightFormat::kMxFp4).read();
  ::setenv("TEMPER_CACHE_DIR", "", 1);
  CHECK(static_cast<int64_t>(cached.size()) == kept_of(*first).matrices);
  CHECK(kept_of(*second).matrices == kept_of(*first).matrices);
  CHECK(mxfp4_scores(*second) == mxfp4_scores(*first));
}

TEST_CASE("MXFP4 that is damaged, or not there, is refused") {
  Mxfp4Directories made;
  const models::Storage storage = kept_in_mxfp4(WeightFormat::kFloat32);
  CHECK_THROWS_WITH_AS(models::load_model(made.plain.path, storage),
                       doctest::Contains("holds no weights in MXFP4"), ConfigError);
  CHECK_THROWS_WITH_AS(models::stream_model(made.plain.path, "", storage),
                       doctest::Contains("holds no weights in MXFP4"), ConfigError);
  const TensorMap whole = made.codes;
  // Of either tensor another one: both ways to read the experts name it.
  const auto refused = [&](const std::string& name, const at::Tensor& instead,
                           const std::string& message) {
    CAPTURE(name);
    made.codes = whole;
    made.codes[name] = models::to_view(instead);
    made.write_codes();
    for (const models::Storage& as : {storage, models::Storage()})
      CHECK_THROWS_WITH_AS(models::load_model(made.quantized.path, as),
                           doctest::Contains(message.c_str()), ConfigError);
  };
  const std::string blocks = kDown + "_blocks", scales = kDown + "_scales";
  refused(scales, at::zeros({3}, at::kByte), blocks);
  refused(scales, at::zeros({kExperts, kHidden, kWidth / 32}, at::kFloat), blocks);
  refused(blocks, at::zeros({kExperts, kHidden, kWidth / 32, 8}, at::kByte), blocks);
  refused(blocks, at::zeros({kExperts, kHidden, kWidth / 32 + 1, 16}, at::kByte), blocks);

  // Scales that make no number, and numbers beyond float32's.
  const at::Tensor given = models::to_tensor(whole.at(scales), at::kByte);
  at::Tensor largest = models::to_tensor(whole.at(blocks), at::kByte).clone();
  largest[1][5][2].fill_(0x77);
  const auto load = [&](int scale, const at::Tensor& codes) {
    at::Tensor changed = given.clone();
    changed[1][5][2] = scale;
    made.codes = whole;
    made.codes[scales] = models::to_view(changed);
    made.codes[blocks] = models::to_view(codes);
    made.write_codes();
    models::load_model(made.quantized.path, storage);
  };
  const std::string name = "model.layers.0.mlp.experts.1.down_proj.weight";
  for (const int scale : {253, 254, 255}) {
    CAPTURE(scale);
    CHECK_THROWS_WITH_AS(load(scale, largest), doctest::Contains(name.c_str()), DataError);
    CHECK_THROWS_WITH_AS(load(scale, largest), doctest::Contains("row 5"), DataError);
  }
  CHECK_NOTHROW(load(252, largest));
  CHECK_NOTHROW(load(0, largest));
  largest[1][5][2].fill_(0x11);
  CHECK_NOTHROW(load(254, largest));
  CHECK_THROWS_AS(load(255, largest), DataError);
}
