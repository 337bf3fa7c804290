// Mixtures of experts as models: the forms of their files, rows that do not depend on the batch,
// experts that no token chose, and adapters in PEFT's form.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "temper/base/file.h"
#include "temper/base/json.h"
#include "temper/io/safetensors.h"
#include "temper/models/adapter.h"
#include "temper/models/load.h"
#include "temper/models/save.h"
#include "temper/models/stream.h"
#include "temper/models/tensors.h"
#include "temper/train/optimizer.h"
#include "temper/train/parameters.h"
#include "tests/models/golden.h"

using namespace temper;
namespace fs = std::filesystem;

namespace {

constexpr const char* kMixtures[] = {"qwen3_moe",  "mixtral",  "olmoe",
                                     "granitemoe", "glm4_moe", "deepseek_v3"};

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
  CHECK(error({.dropout = 0.1}).find("no dropout") != std::string::npos);
  CHECK(error({.dora = true}).find("DoRA") != std::string::npos);
  CHECK(error({.dropout = 0.1, .target_modules = {"q_proj"}}).empty());
  CHECK(error({.target_modules = {"model.layers.0.mlp.experts.1.down_proj"}})
            .find("1 of the 5 layers") != std::string::npos);
  // A layer without experts: PEFT's files have no name for it.
  CHECK(error({.target_modules = {"model.layers.1.mlp.down_proj"}}).find("names no linear layer") !=
        std::string::npos);
}
