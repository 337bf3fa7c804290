// Every family against transformers, and an adapter against PEFT:
// tests/golden/make_model_goldens.py says what was computed.
//
// Tolerances. Both sides compute in float32 and sum in different orders. A log-probability of these
// models is a number of up to 16, whose unit in the last place is 1e-6, behind 2 to 7 layers of
// sums of at most 61 terms: a few units per layer. A wrong constant, norm, cap, window or rotary
// base shows at 1e-3 and more.
#include "tests/models/golden.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "temper/base/json.h"
#include "temper/generate/engine.h"
#include "temper/io/safetensors.h"
#include "temper/models/adapters/adapter.h"
#include "temper/models/adapters/adapter_files.h"
#include "temper/models/files/load.h"
#include "temper/train/config.h"
#include "temper/train/optimizers/optimizer.h"
#include "temper/train/roles/parameters.h"

using namespace temper;
namespace fs = std::filesystem;

namespace {

constexpr double kLogpTolerance = 1e-5;
constexpr double kGradientTolerance = 2e-5;  // of the largest element of the same tensor, or of 0.1

struct Golden {
  explicit Golden(const std::string& name)
      : directory(golden_model(name)),
        tensors(read_safetensors(directory + "/expected.safetensors")),
        json(read_json_file(directory + "/expected.json")),
        sequences(json["sequences"].get<Sequences>()) {}

  at::Tensor tensor(const std::string& key) const {
    return models::to_tensor(tensors.at(key), at::kFloat);
  }

  std::string directory;
  TensorMap tensors;
  Json json;
  Sequences sequences;
};

// For docs/models.md: TEMPER_SHOW_DIFFERENCES=1.
void show(const std::string& name, const char* what, double apart) {
  if (std::getenv("TEMPER_SHOW_DIFFERENCES"))
    std::printf("%s\t%s\t%.1e\n", name.c_str(), what, apart);
}

// Mean negative log-probability; leaves its gradients in the parameters.
double backward(models::CausalLM& model, const Sequences& sequences) {
  const at::Tensor loss = -log_probabilities(model, sequences).mean();
  loss.backward();
  return loss.item<double>();
}

// Compares the gradient of every trainable parameter with golden `prefix`NAME; neither side may
// have more.
void check_gradients(models::CausalLM& model, const Golden& golden, const std::string& prefix) {
  std::set<std::string> left;
  for (const auto& [name, view] : golden.tensors)
    if (name.starts_with(prefix)) left.insert(name);
  REQUIRE(!left.empty());
  for (const train::NamedParameter& p : train::trainable_parameters(model)) {
    CAPTURE(p.name);
    REQUIRE(left.erase(prefix + p.name) == 1);
    const at::Tensor expected = golden.tensor(prefix + p.name), found = p.parameter->value().grad();
    const double largest = expected.abs().max().item<double>();
    if (largest == 0 && p.name.find(".experts.") != std::string::npos) {
      CHECK(!found.defined());  // an expert that no token chose
      continue;
    }
    REQUIRE(found.defined());
    CHECK(largest > 0);
    CHECK(difference(found, expected) < kGradientTolerance * std::max(0.1, largest));
  }
  CHECK(left.empty());
}

train::OptimizerSection adamw(const Golden& golden) {
  train::OptimizerSection config;
  config.learning_rate = golden.json["lr"];
  config.betas = {golden.json["betas"][0], golden.json["betas"][1]};
  config.eps = golden.json["eps"];
  config.weight_decay = golden.json["weight_decay"];
  return config;
}

}  // namespace

TEST_CASE("log-probabilities are transformers'") {
  for (const std::string& name : golden_models()) {
    CAPTURE(name);
    const Golden golden(name);
    const auto model = models::load_model(golden.directory);
    const double apart =
        difference(log_probabilities(*model, golden.sequences), golden.tensor("logp"));
    CHECK(apart < kLogpTolerance);
    show(name, "log-probability", apart);
  }
}

TEST_CASE("a config.json in the form of transformers 4 is the same model, to the bit") {
  for (const std::string& name : golden_models()) {
    CAPTURE(name);
    const Golden golden(name);
    if (!fs::exists(golden.directory + "/config_v4.json")) continue;
    const fs::path copy = fs::temp_directory_path() / ("temper_v4_" + name);
    fs::create_directories(copy);
    for (const auto& [from, to] :
         {std::pair{"config_v4.json", "config.json"}, {"model.safetensors", "model.safetensors"}})
      fs::copy_file(golden.directory + "/" + from, copy / to, fs::copy_options::overwrite_existing);
    const auto model = models::load_model(golden.directory),
               old = models::load_model(copy.string());
    CHECK(at::equal(log_probabilities(*model, golden.sequences),
                    log_probabilities(*old, golden.sequences)));
    fs::remove_all(copy);
  }
}

TEST_CASE("gradients of every parameter are transformers'") {
  for (const std::string& name : golden_models()) {
    CAPTURE(name);
    const Golden golden(name);
    const auto model = models::load_model(golden.directory);
    train_all(*model);
    const double loss = backward(*model, golden.sequences);
    CHECK(std::abs(loss - golden.json["losses"][0].get<double>()) < kLogpTolerance);
    check_gradients(*model, golden, "grad.");
  }
}

// The first steps of AdamW divide a gradient by its own size, so an element whose gradient is near
// 0 takes its rounding errors at full weight: after ten steps the tolerances are wider.
TEST_CASE("ten steps of AdamW with clipping are torch's") {
  for (const std::string& name : golden_models()) {
    CAPTURE(name);
    const Golden golden(name);
    const auto model = models::load_model(golden.directory);
    train_all(*model);
    const train::OptimizerSection config = adamw(golden);
    train::Optimizer optimizer(config, train::trainable_parameters(*model));
    double curve = 0;
    for (size_t step = 0; step < 10; ++step) {
      CAPTURE(step);
      const double loss = backward(*model, golden.sequences), norm = optimizer.grad_norm();
      const double apart = std::abs(loss - golden.json["losses"][step].get<double>());
      CHECK(apart < 1e-4);
      curve = std::max(curve, apart);
      CHECK(norm == doctest::Approx(golden.json["norms"][step].get<double>()).epsilon(1e-4));
      optimizer.step(config.learning_rate, std::min(1.0, 1.0 / (norm + 1e-6)));
    }
    CHECK(difference(log_probabilities(*model, golden.sequences), golden.tensor("final_logp")) <
          5e-4);
    show(name, "loss", curve);
  }
}

TEST_CASE("greedy continuations are transformers'") {
  for (const std::string& name : golden_models()) {
    CAPTURE(name);
    const Golden golden(name);
    const auto model = models::load_model(golden.directory);
    generate::GenerationOptions options;
    options.sampling.temperature = 0;
    options.max_new_tokens = 12;
    std::vector<int32_t> tokens;
    generate::generate(*model, {golden.json["prompt"].get<std::vector<int32_t>>()}, 1, options,
                       [&](generate::Completion c) { tokens = c.tokens; });
    CHECK(tokens == golden.json["greedy"].get<std::vector<int32_t>>());
  }
}

TEST_CASE("log-probabilities and gradients through an adapter are PEFT's") {
  for (const std::string name : {"qwen3", "qwen3_moe", "gemma4_text_moe"}) {
    CAPTURE(name);
    const Golden golden(name);
    const auto model = models::load_model(golden.directory);
    models::load_adapter(*model, golden.directory + "/adapter");
    CHECK(difference(log_probabilities(*model, golden.sequences), golden.tensor("adapter.logp")) <
          kLogpTolerance);
    CHECK(difference(golden.tensor("adapter.logp"), golden.tensor("logp")) > 0.1);
    backward(*model, golden.sequences);
    check_gradients(*model, golden, "adapter.grad.");

    models::merge_adapters(*model);
    CHECK(difference(log_probabilities(*model, golden.sequences), golden.tensor("adapter.logp")) <
          kLogpTolerance);
  }
}
