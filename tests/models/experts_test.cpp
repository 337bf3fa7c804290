// Mixtures of experts as models: the forms of their files, rows that do not depend on the batch,
// experts that no token chose, and adapters in PEFT's form.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "temper/base/file.h"
#include "temper/base/json.h"
#include "temper/io/safetensors.h"
#include "temper/models/adapters/adapter.h"
#include "temper/models/adapters/adapter_files.h"
#include "temper/models/files/load.h"
#include "temper/models/files/save.h"
#include "temper/models/files/stream.h"
#include "temper/models/files/tensors.h"
#include "temper/models/init.h"
#include "temper/train/optimizers/optimizer.h"
#include "temper/train/roles/parameters.h"
#include "tests/models/golden.h"

using namespace temper;
namespace fs = std::filesystem;

namespace {

constexpr const char* kMixtures[] = {"qwen3_moe", "mixtral",     "olmoe",   "granitemoe",
                                     "glm4_moe",  "deepseek_v3", "gpt_oss", "gemma4_text_moe"};

Sequences sequences_of(const std::string& name) {
  return read_json_file(golden_model(name) + "/expected.json")["sequences"].get<Sequences>();
}

std::map<std::string, std::string> contents(const std::string& file) {
  std::map<std::string, std::string> out;
  for (const auto& [name, view] : read_safetensors(file))
    out[name] =
        std::string(static_cast<const char*>(static_cast<const void*>(view.data)), view.num_bytes);
  return out;
}

void copy_config(const std::string& from, const std::string& to) {
  fs::copy_file(golden_model(from) + "/config.json", to + "/config.json");
}

}  // namespace

TEST_CASE("a mixture is written as transformers writes it, whole or as a stream") {
  for (const std::string name : kMixtures) {
    CAPTURE(name);
    const auto expected = contents(golden_model(name) + "/model.safetensors");
    const Directory whole("moe_whole"), streamed("moe_streamed");
    const auto model = models::load_model(golden_model(name));
    models::save_weights(*model, whole.path, at::kFloat);
    CHECK((contents(whole.path + "/model.safetensors") == expected));
    const auto stream = models::stream_model(golden_model(name), "", {});
    write_safetensors_model(streamed.path, stream.weights->merged_tensors(at::kFloat));
    CHECK((contents(streamed.path + "/model.safetensors") == expected));
    const at::NoGradGuard no_grad;
    CHECK(at::equal(log_probabilities(*stream.model, sequences_of(name)),
                    log_probabilities(*model, sequences_of(name))));
  }
}

TEST_CASE("stacked experts are read as single ones are") {
  for (const std::string name : kMixtures) {
    if (name == "gpt_oss") continue;  // whose stacks have inputs first
    CAPTURE(name);
    const auto model = models::load_model(golden_model(name));
    std::map<std::string, std::vector<at::Tensor>> stacks;
    TensorMap tensors;
    model->each_parameter([&](const std::string& parameter, nn::Parameter& p) {
      const size_t at = parameter.find(".experts.");
      if (at == parameter.npos) {
        tensors[parameter] = models::to_view(p.value());
        return;
      }
      const size_t layer = parameter.find('.', at + 9);
      stacks[parameter.substr(0, at + 9) +
             parameter.substr(layer + 1, parameter.rfind('.') - layer - 1)]
          .push_back(p.value());
    });
    CHECK(stacks.size() == 4);  // two projections in two layers
    for (const auto& [stack, values] : stacks) tensors[stack] = models::to_view(at::stack(values));
    const Directory directory("moe_stacked");
    copy_config(name, directory.path);
    write_safetensors(directory.path + "/model.safetensors", tensors);
    const auto read = models::load_model(directory.path);
    CHECK(at::equal(log_probabilities(*read, sequences_of(name)),
                    log_probabilities(*model, sequences_of(name))));
  }
}

TEST_CASE("weights in FP8 are read as the float32 ones of the same values") {
  const Directory plain("moe_plain"), quantized("moe_fp8");
  copy_config("deepseek_v3", plain.path);
  Json config = read_json_file(plain.path + "/config.json");
  config["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {8, 16}}};
  write_file_atomic(quantized.path + "/config.json", config.dump());
  TensorMap values = read_safetensors(golden_model("deepseek_v3") + "/model.safetensors"),
            codes = values;
  for (auto& [name, view] : values) {
    if (!name.ends_with("_proj.weight") && !name.ends_with("_with_mqa.weight")) continue;
    const at::Tensor w = models::to_tensor(view, at::kFloat);
    const int64_t out = w.size(0), in = w.size(1);
    const at::Tensor scale = at::rand({(out + 7) / 8, (in + 15) / 16}) + 0.5;
    const at::Tensor each =
        scale.repeat_interleave(8, 0).slice(0, 0, out).repeat_interleave(16, 1).slice(1, 0, in);
    const at::Tensor code = (w / each).to(at::kFloat8_e4m3fn);
    codes[name] = models::to_view(code);
    codes[name + "_scale_inv"] = models::to_view(scale);
    view = models::to_view(code.to(at::kFloat) * each);
  }
  write_safetensors(plain.path + "/model.safetensors", values);
  write_safetensors(quantized.path + "/model.safetensors", codes);
  const Sequences sequences = sequences_of("deepseek_v3");
  const auto read = models::load_model(quantized.path), expected = models::load_model(plain.path);
  CHECK(at::equal(log_probabilities(*read, sequences), log_probabilities(*expected, sequences)));
  config["quantization_config"]["weight_block_size"] = {8, 8};
  write_file_atomic(quantized.path + "/config.json", config.dump());
  CHECK_THROWS_WITH_AS(models::load_model(quantized.path), doctest::Contains("_scale_inv"),
                       DataError);
  config["quantization_config"]["weight_block_size"] = {8, 0};
  write_file_atomic(quantized.path + "/config.json", config.dump());
  CHECK_THROWS_WITH_AS(models::load_model(quantized.path), doctest::Contains("weight_block_size"),
                       ConfigError);
}

TEST_CASE("biases of experts decay as the stacks that they are in transformers") {
  const auto model = models::load_model(golden_model("gpt_oss"));
  int64_t biases = 0;
  model->each_parameter([&](const std::string& name, nn::Parameter& p) {
    const bool of_expert = name.find(".experts.") != std::string::npos;
    if (name.ends_with(".bias")) CHECK(p.decays() == of_expert);
    biases += of_expert && name.ends_with(".bias");
  });
  CHECK(biases == 2 * 5 * 2);
}

TEST_CASE("damaged experts are told by name") {
  const Directory directory("moe_damaged");
  copy_config("qwen3_moe", directory.path);
  const std::string up = "model.layers.0.mlp.experts.3.up_proj.weight";
  TensorMap tensors = read_safetensors(golden_model("qwen3_moe") + "/model.safetensors");
  const auto error = [&] {
    write_safetensors(directory.path + "/model.safetensors", tensors);
    try {
      models::load_model(directory.path);
    } catch (const ConfigError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  tensors[up] = models::to_view(at::zeros({3, 20}));
  CHECK(error().find("lack model.layers.0.mlp.experts.3.gate_up_proj.weight") != std::string::npos);
  tensors.erase(up);
  CHECK(error().find("not recognized: model.layers.0.mlp.experts.3.gate_proj.weight") !=
        std::string::npos);
  Json config = read_json_file(directory.path + "/config.json");
  config["num_experts_per_tok"] = 6;
  write_file_atomic(directory.path + "/config.json", config.dump());
  CHECK(error().find("num_experts_per_tok") != std::string::npos);
}

TEST_CASE("a mixture's rows are those of each sequence alone, to the bit") {
  for (const std::string name : kMixtures) {
    CAPTURE(name);
    const auto model = models::load_model(golden_model(name));
    const Sequences sequences = sequences_of(name);
    std::vector<at::Tensor> alone;
    for (const auto& sequence : sequences) alone.push_back(log_probabilities(*model, {sequence}));
    CHECK(at::equal(at::cat(alone), log_probabilities(*model, sequences)));
  }
}

TEST_CASE("experts that no token chose have no gradient, but decay") {
  const auto model = models::load_model(golden_model("qwen3_moe"));
  train_all(*model);
  train::OptimizerSection config;
  config.weight_decay = 0.25;
  train::Optimizer optimizer(config, train::trainable_parameters(*model));
  std::map<std::string, at::Tensor> before;
  (-log_probabilities(*model, {{5, 9}})).sum().backward();
  int64_t unchosen = 0;
  for (const train::NamedParameter& p : optimizer.parameters())
    before[p.name] = p.parameter->value().detach().clone();
  std::set<std::string> without;
  for (const train::NamedParameter& p : optimizer.parameters())
    if (!p.parameter->value().grad().defined()) without.insert(p.name);
  optimizer.step(0.125, 1);
  for (const train::NamedParameter& p : optimizer.parameters()) {
    if (!without.contains(p.name)) continue;
    ++unchosen;
    CHECK(p.name.find(".experts.") != std::string::npos);
    CHECK(at::allclose(p.parameter->value(), before[p.name] * (1 - 0.125 * 0.25), 0, 1e-7));
  }
  CHECK(unchosen > 0);  // two tokens, of which one is predicted from: at most two of five experts
}

TEST_CASE("an adapter of experts is read and written in PEFT's form") {
  const std::string name = "qwen3_moe", file = "/adapter_model.safetensors";
  const auto model = models::load_model(golden_model(name));
  const models::LoraConfig config = models::load_adapter(*model, golden_model(name) + "/adapter");
  const Directory directory("moe_adapter");
  models::save_adapter(*model, config, golden_model(name), directory.path);
  CHECK((contents(directory.path + file) == contents(golden_model(name) + "/adapter" + file)));
  const Json json = read_json_file(directory.path + "/adapter_config.json");
  CHECK(json["target_modules"] == Json({"q_proj", "v_proj"}));
  CHECK(json["target_parameters"] == Json({"mlp.experts.down_proj", "mlp.experts.gate_up_proj"}));

  // One projection alone has no nested names.
  for (const char* projection : {"gate_up_proj", "down_proj"}) {
    CAPTURE(projection);
    const auto one = models::load_model(golden_model(name)),
               again = models::load_model(golden_model(name));
    const models::LoraConfig of{.rank = 3, .alpha = 5, .target_modules = {projection}};
    models::add_lora(*one, of, 4);
    one->each_parameter([](const std::string& parameter, nn::Parameter& p) {
      if (parameter.find("lora_B") != std::string::npos) p.set_value(at::full(p.shape(), 0.1));
    });
    models::save_adapter(*one, of, golden_model(name), directory.path);
    CHECK(contents(directory.path + file)
              .contains("base_model.model.model.layers.0.mlp.experts.lora_A.weight"));
    models::load_adapter(*again, directory.path);
    CHECK(models::targets_are(*again, {projection}));
    CHECK(at::equal(log_probabilities(*again, sequences_of(name)),
                    log_probabilities(*one, sequences_of(name))));
  }
}

TEST_CASE("experts beside an MLP: adapters of both, and of the router, are PEFT's") {
  const std::string name = "gemma4_text_moe", file = "/adapter_model.safetensors";
  const auto model = models::load_model(golden_model(name));
  const models::LoraConfig config = models::load_adapter(*model, golden_model(name) + "/adapter");
  CHECK(models::targets_are(*model, {"q_proj", "proj", "gate_up_proj", "down_proj"}));
  const Directory directory("moe_beside");
  models::save_adapter(*model, config, golden_model(name), directory.path);
  CHECK((contents(directory.path + file) == contents(golden_model(name) + "/adapter" + file)));
  const Json json = read_json_file(directory.path + "/adapter_config.json");
  CHECK(json["target_modules"] == Json({"down_proj", "q_proj"}));
  CHECK(json["target_parameters"] ==
        Json({"experts.down_proj", "experts.gate_up_proj", "router.proj.weight"}));
  const auto all = models::load_model(golden_model(name));
  models::add_lora(*all, {.rank = 2, .alpha = 3}, 4);
  CHECK(models::targets_are(*all, {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj",
                                   "down_proj", "gate_up_proj"}));
}

TEST_CASE("Gemma 4's keys of experts") {
  Json json = read_json_file(golden_model("gemma4_text_moe") + "/config.json");
  const auto error = [&](const char* key, const Json& value) {
    Json changed = json;
    changed[key] = value;
    try {
      models::make_model(models::HfConfig::parse(changed, "config"));
    } catch (const ConfigError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  for (const char* key : {"num_experts", "top_k_experts", "moe_intermediate_size"})
    CHECK(error(key, nullptr).find(str("`", key, "`: is missing")) != std::string::npos);
  CHECK(error("top_k_experts", 6).find("6 of 5 experts") != std::string::npos);
  CHECK(error("num_experts", 1 << 20).find("num_experts") != std::string::npos);
  CHECK(error("enable_moe_block", false).empty());
}

// PEFT with transformers 4, where every expert and the router had linear layers of their own.
TEST_CASE("an adapter of single experts is one of their joined layers") {
  for (const std::string name : {"qwen3_moe", "mixtral"})
    for (const bool rslora : {false, true}) {
      CAPTURE(name);
      CAPTURE(rslora);
      const bool mixtral = name == "mixtral";
      const auto expected = models::load_model(golden_model(name)),
                 adapted = models::load_model(golden_model(name));
      const double scale = rslora ? 3 / std::sqrt(2.0) : 1.5;
      TensorMap tensors;
      int64_t seed = 0;
      // Writes the matrices of a layer [out, in]; gives what they add to its weight.
      const auto add = [&](std::string path, int64_t out, int64_t in) {
        if (const size_t at = path.find(".mlp."); mixtral && at != path.npos)
          path.replace(at, 5, ".block_sparse_moe.");
        at::manual_seed(static_cast<uint64_t>(++seed));
        const at::Tensor a = 0.3 * at::randn({2, in}), b = 0.3 * at::randn({out, 2});
        const std::string stem = "base_model.model." + path;
        tensors[stem + ".lora_A.weight"] = models::to_view(a);
        tensors[stem + ".lora_B.weight"] = models::to_view(b);
        return scale * at::matmul(b, a);
      };
      expected->each_parameter([&](const std::string& parameter, nn::Parameter& p) {
        const size_t dot = parameter.rfind('.');
        const std::string path = parameter.substr(0, dot), stem = path.substr(0, path.rfind('.'));
        const int64_t out = p.shape()[0], in = p.shape().size() > 1 ? p.shape()[1] : 0;
        at::Tensor delta;
        if (path.ends_with(".q_proj") || path.ends_with(".mlp.gate")) {
          delta = add(path, out, in);
        } else if (path.find(".experts.") != path.npos && path.ends_with(".gate_up_proj")) {
          delta = at::cat({add(stem + (mixtral ? ".w1" : ".gate_proj"), out / 2, in),
                           add(stem + (mixtral ? ".w3" : ".up_proj"), out / 2, in)});
        } else if (path.find(".experts.") != path.npos) {
          delta = add(stem + (mixtral ? ".w2" : ".down_proj"), out, in);
        }
        if (delta.defined()) p.set_value(p.value() + delta);
      });
      const Directory directory("moe_single");
      write_safetensors(directory.path + "/adapter_model.safetensors", tensors);
      write_file_atomic(directory.path + "/adapter_config.json",
                        Json({{"peft_type", "LORA"},
                              {"r", 2},
                              {"lora_alpha", 3},
                              {"use_rslora", rslora},
                              {"target_modules", "all-linear"}})
                            .dump());
      models::load_adapter(*adapted, directory.path);
      CHECK(difference(log_probabilities(*adapted, sequences_of(name)),
                       log_probabilities(*expected, sequences_of(name))) < 1e-5);

      // One without the other has no joined layer.
      const std::string stem = "base_model.model.model.layers.0.";
      tensors.erase(stem + (mixtral ? "block_sparse_moe.experts.1.w3" : "mlp.experts.1.up_proj") +
                    ".lora_A.weight");
      write_safetensors(directory.path + "/adapter_model.safetensors", tensors);
      const auto again = models::load_model(golden_model(name));
      CHECK_THROWS_WITH_AS(models::load_adapter(*again, directory.path),
                           doctest::Contains("expected gate_proj and up_proj"), ConfigError);
    }
}

TEST_CASE("a router's adapter trains where it is named, and is written as PEFT's") {
  const std::string name = "qwen3_moe";
  const auto model = models::load_model(golden_model(name)),
             again = models::load_model(golden_model(name));
  const models::LoraConfig config{.rank = 2, .alpha = 3, .target_modules = {"gate", "q_proj"}};
  models::add_lora(*model, config, 4);
  model->each_parameter([](const std::string& parameter, nn::Parameter& p) {
    if (parameter.find("lora_B") != parameter.npos) p.set_value(at::full(p.shape(), 0.2));
  });
  const Directory directory("moe_router");
  models::save_adapter(*model, config, golden_model(name), directory.path);
  const Json json = read_json_file(directory.path + "/adapter_config.json");
  CHECK(json["target_modules"] == Json({"q_proj"}));
  CHECK(json["target_parameters"] == Json({"mlp.gate.weight"}));
  models::load_adapter(*again, directory.path);
  CHECK(models::targets_are(*again, {"gate", "q_proj"}));
  const at::Tensor found = log_probabilities(*again, sequences_of(name));
  CHECK(at::equal(found, log_probabilities(*model, sequences_of(name))));
  models::merge_adapters(*again);
  CHECK(difference(log_probabilities(*again, sequences_of(name)), found) < 1e-5);
  for (const bool dora : {false, true})
    CHECK_THROWS_WITH_AS(
        models::add_lora(*models::load_model(golden_model(name)),
                         {.dropout = dora ? 0 : 0.1, .target_modules = {"gate"}, .dora = dora}, 1),
        doctest::Contains("is not supported on a mixture's router"), ConfigError);
}

TEST_CASE("adapters of experts are for all of a layer's, without dropout and magnitudes") {
  const auto error = [](const models::LoraConfig& config) {
    const auto model = models::load_model(golden_model("qwen3_moe"));
    try {
      models::add_lora(*model, config, 1);
    } catch (const ConfigError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  CHECK(error({}).empty());
  CHECK(error({.dropout = 0.1}).find("dropout is not supported") != std::string::npos);
  CHECK(error({.dora = true}).find("DoRA") != std::string::npos);
  CHECK(error({.dropout = 0.1, .target_modules = {"q_proj"}}).empty());
  CHECK(error({.target_modules = {"model.layers.0.mlp.experts.1.down_proj"}})
            .find("1 of the 5 layers") != std::string::npos);
  // A layer without experts: PEFT's files have no name for it.
  CHECK(error({.target_modules = {"model.layers.1.mlp.down_proj"}}).find("names no linear layer") !=
        std::string::npos);
}
