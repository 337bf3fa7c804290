// DoRA, rank-stabilised LoRA and whole modules against PEFT:
// tests/golden/make_adapter_goldens.py says what was computed. Tolerances are those of
// golden_test.cpp.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/base/json.h"
#include "temper/io/safetensors.h"
#include "temper/models/adapters/adapter.h"
#include "temper/models/adapters/adapter_copies.h"
#include "temper/models/adapters/adapter_files.h"
#include "temper/models/files/load.h"
#include "temper/models/files/save.h"
#include "temper/models/files/stream.h"
#include "temper/models/files/tensors.h"
#include "temper/ops/backend.h"
#include "temper/train/optimizers/optimizer.h"
#include "temper/train/roles/parameters.h"
#include "tests/models/golden.h"

using namespace temper;
namespace fs = std::filesystem;

namespace {

// The mixtures': attention, routers and experts (all-linear).
const char* const kCases[] = {"dora",        "dora_rslora", "rslora",     "saved",
                              "saved_head",  "saved_tied",  "head",       "head_tied",
                              "head_capped", "head_scaled", "mixture",    "mixture_rslora",
                              "tokens",      "tokens_head", "tokens_tied"};

struct Case {
  explicit Case(const std::string& name)
      : directory(golden_path("adapters/" + name)),
        tensors(read_safetensors(directory + "/expected.safetensors")),
        json(read_json_file(directory + "/expected.json")),
        base(golden_model(json["model"].get<std::string>())),
        sequences(json["sequences"].get<Sequences>()),
        model(models::load_model(base)) {}

  at::Tensor tensor(const std::string& key) const {
    return models::to_tensor(tensors.at(key), at::kFloat);
  }

  at::Tensor logp(models::CausalLM& of, int adapter = 0) const {
    return log_probabilities(of, sequences, adapter);
  }

  std::string directory;
  TensorMap tensors;
  Json json;
  std::string base;
  Sequences sequences;
  std::unique_ptr<models::CausalLM> model;
};

// How far a gradient may be from the reference's, relative to its largest number. The order of
// ATen's sums, in which both differ, is another one on each kind of processor.
double rounding() { return &ops::default_cpu_backend() == &ops::native_backend() ? 2e-5 : 1e-4; }

}  // namespace

TEST_CASE("log-probabilities and gradients through adapters of every kind are PEFT's") {
  for (const char* name : kCases) {
    CAPTURE(name);
    const Case of(name);
    const at::Tensor base = of.logp(*of.model).detach();
    models::load_adapter(*of.model, of.directory);
    const at::Tensor logp = of.logp(*of.model);
    CHECK(difference(logp, of.tensor("logp")) < 1e-5);
    CHECK(difference(logp, base) > 0.1);
    CHECK(at::equal(of.logp(*of.model, -1), base));  // the base model is still there, to the bit

    logp.neg().mean().backward();
    std::set<std::string> left;
    for (const auto& [key, view] : of.tensors)
      if (key.starts_with("grad.")) left.insert(key);
    for (const train::NamedParameter& p : train::trainable_parameters(*of.model)) {
      CAPTURE(p.name);
      REQUIRE(left.erase("grad." + p.name) == 1);
      const at::Tensor expected = of.tensor("grad." + p.name), found = p.parameter->value().grad();
      REQUIRE(found.defined());
      CHECK(difference(found, expected) <
            rounding() * std::max(0.1, expected.abs().max().item<double>()));
    }
    CHECK(left.empty());
  }
}

TEST_CASE("merged weights are PEFT's, and the merged model is the adapted one") {
  for (const char* name : kCases) {
    CAPTURE(name);
    const Case of(name);
    models::load_adapter(*of.model, of.directory);
    if (models::adapts_tied_head(*of.model)) {
      CHECK_THROWS_AS(models::merge_adapters(*of.model), RunError);
      continue;
    }
    models::merge_adapters(*of.model);
    int64_t compared = 0;
    of.model->each_parameter([&](const std::string& parameter, nn::Parameter& p) {
      CAPTURE(parameter);
      CHECK(parameter.find("lora") == std::string::npos);
      if (!of.tensors.contains("merged." + parameter)) return;
      ++compared;
      CHECK(difference(p.value(), of.tensor("merged." + parameter)) < 2e-6);
    });
    CHECK(compared >= 3);
    CHECK(difference(of.logp(*of.model), of.tensor("logp")) < 1e-5);
  }
}

TEST_CASE("five steps of AdamW with clipping through an adapter are torch's and PEFT's") {
  for (const char* name : kCases) {
    CAPTURE(name);
    const Case of(name);
    models::load_adapter(*of.model, of.directory);
    train::OptimizerSection config;
    config.learning_rate = of.json["lr"];
    config.betas = {of.json["betas"][0], of.json["betas"][1]};
    config.eps = of.json["eps"];
    config.weight_decay = of.json["weight_decay"];
    train::Optimizer optimizer(config, train::trainable_parameters(*of.model));
    for (size_t step = 0; step < 5; ++step) {
      CAPTURE(step);
      const at::Tensor loss = -of.logp(*of.model).mean();
      loss.backward();
      const double norm = optimizer.grad_norm();
      CHECK(std::abs(loss.item<double>() - of.json["losses"][step].get<double>()) < 1e-4);
      CHECK(norm == doctest::Approx(of.json["norms"][step].get<double>()).epsilon(1e-4));
      optimizer.step(config.learning_rate, std::min(1.0, 1.0 / (norm + 1e-6)));
    }
    CHECK(difference(of.logp(*of.model), of.tensor("final_logp")) < 5e-4);
  }
}

TEST_CASE("a saved adapter has PEFT's tensors and reads back to the same bits") {
  for (const char* name : kCases) {
    CAPTURE(name);
    const Case of(name);
    const models::LoraConfig config = models::load_adapter(*of.model, of.directory);
    const Directory folder(name);
    const std::string saved = folder.path + "/saved";
    models::save_adapter(*of.model, config, "base", saved);
    const TensorMap ours = read_safetensors(saved + "/adapter_model.safetensors"),
                    theirs = read_safetensors(of.directory + "/adapter_model.safetensors");
    const bool head = models::adapts_head(*of.model);  // PEFT writes the base's weight beside it
    CHECK(ours.size() == theirs.size() - head);
    for (const auto& [key, view] : theirs) {
      if (key.ends_with("lm_head.base_layer.weight")) continue;
      CAPTURE(key);
      REQUIRE(ours.contains(key));
      CHECK(at::equal(models::to_tensor(ours.at(key), at::kFloat),
                      models::to_tensor(view, at::kFloat)));
    }
    const Json written = read_json_file(saved + "/adapter_config.json"),
               peft = read_json_file(of.directory + "/adapter_config.json");
    for (const char* key : {"use_dora", "use_rslora", "r", "lora_alpha"}) {
      CAPTURE(key);
      CHECK(written[key] == peft[key]);
    }
    CHECK(written.value("ensure_weight_tying", false) == peft["ensure_weight_tying"]);
    for (const char* key : {"rank_pattern", "alpha_pattern"}) {
      CAPTURE(key);
      CHECK(written.value(key, Json::object()) == peft[key]);
    }
    const auto again = models::load_model(of.base);
    models::load_adapter(*again, saved);
    CHECK(at::equal(of.logp(*again), of.logp(*of.model)));
  }
}

TEST_CASE("adapters of different kinds beside each other are each what it is alone, to the bit") {
  const Case dora("dora"), saved("saved");
  const auto together = models::load_model(dora.base), alone = models::load_model(dora.base);
  const at::Tensor base = dora.logp(*together).detach();
  std::set<std::string> before, after;
  const auto names = [](models::CausalLM& model, std::set<std::string>& out) {
    model.each_parameter([&](const std::string& name, nn::Parameter&) { out.insert(name); });
  };
  names(*together, before);
  REQUIRE(models::load_frozen_adapter(*together, dora.directory) == 1);
  REQUIRE(models::load_frozen_adapter(*together, saved.directory) == 2);
  names(*together, after);
  CHECK(before == after);
  CHECK(at::equal(dora.logp(*together), base));
  models::load_adapter(*dora.model, dora.directory);
  CHECK(at::equal(dora.logp(*together, 1), dora.logp(*dora.model)));
  models::load_adapter(*alone, saved.directory);
  CHECK(at::equal(dora.logp(*together, 2), dora.logp(*alone)));

  // One more that trains, beside them; a copy of it stays what it was.
  models::load_adapter(*together, saved.directory);
  const at::Tensor own = dora.logp(*together, 0).detach();
  CHECK(at::equal(own, dora.logp(*alone)));
  REQUIRE(models::freeze_adapter_copy(*together) == 3);
  for (const train::NamedParameter& p : train::trainable_parameters(*together)) {
    p.parameter->value().detach().mul_(1.5);
    p.parameter->mark_updated();
  }
  CHECK(!at::equal(dora.logp(*together, 0), own));
  CHECK(at::equal(dora.logp(*together, 3), own));
  CHECK(at::equal(dora.logp(*together, 1), dora.logp(*dora.model)));
  CHECK(at::equal(dora.logp(*together, -1), base));
}

TEST_CASE(
    "a fresh DoRA adapter is the base model to the bit, a frozen copy of a trained one itself") {
  Case of("dora");
  const at::Tensor base = of.logp(*of.model).detach();
  models::LoraConfig config{.rank = 4, .target_modules = {"all-linear"}, .dora = true};
  models::add_lora(*of.model, config, 1);
  CHECK(at::equal(of.logp(*of.model), base));
  const auto move = [&](const char* part) {
    of.model->each_parameter([&](const std::string& name, nn::Parameter& p) {
      if (name.find(part) == std::string::npos) return;
      p.value().detach().add_(0.1);
      p.mark_updated();
    });
  };
  // Every one of the three changes the norms or their use.
  at::Tensor last = base;
  for (const char* part : {"lora_B", "lora_A", "lora_magnitude"}) {
    move(part);
    const at::Tensor now = of.logp(*of.model).detach();
    CHECK(!at::equal(now, last));
    last = now;
  }
  REQUIRE(models::freeze_adapter_copy(*of.model) == 1);
  CHECK(at::equal(of.logp(*of.model, 1), last));
  move("lora_magnitude");
  CHECK(at::equal(of.logp(*of.model, 1), last));
  CHECK(!at::equal(of.logp(*of.model, 0), last));
}

// What `temper reward` begins with where adapter.path is a language model's adapter.
TEST_CASE("a language model's adapter goes on in a scalar model, whole modules included") {
  for (const std::string name :
       {"dora_rslora", "saved", "saved_head", "saved_tied", "head", "head_tied"}) {
    CAPTURE(name);
    const Case of(name);
    models::load_adapter(*of.model, of.directory);
    const auto scalar = models::load_scalar_model(of.base, {}, 7);
    const auto forest = std::make_shared<Forest>();
    for (const std::vector<int32_t>& tokens : of.sequences) forest->add_root(tokens);
    const at::Tensor before = scalar->forward({.forest = forest});
    const models::LoraConfig found = models::load_adapter(*scalar, of.directory);
    CHECK(at::equal(scalar->forward({.forest = forest}), of.model->forward({.forest = forest})));
    CHECK(!at::equal(scalar->forward({.forest = forest}), before));
    CHECK(models::saved_modules_are(*scalar, found.modules_to_save));
  }
}

TEST_CASE("an adapter of a tied head is merged into a head of its own") {
  for (const char* name : {"head_tied", "head_capped", "head_scaled"}) {
    CAPTURE(name);
    const Case of(name);
    models::load_adapter(*of.model, of.directory);
    const Directory folder(name);
    auto streamed = models::stream_model(of.base, of.directory, {});
    write_safetensors_model(folder.path, streamed.weights->merged_tensors(at::kFloat));
    models::write_model_files({of.base, ""}, folder.path, at::kFloat, models::HeadKind::kVocabulary,
                              true);
    const auto merged = models::load_model(folder.path);
    CHECK(!merged->config().tie_word_embeddings);
    CHECK(difference(of.logp(*merged), of.tensor("logp")) < 1e-5);
    const auto base = models::load_model(of.base);
    CHECK(at::equal(merged->body().embedding().weight.value(),
                    base->body().embedding().weight.value()));
  }
}

TEST_CASE("adapters that a vocabulary's head cannot have are refused") {
  const Case of("head"), tied("head_tied");
  models::LoraConfig config{.rank = 2, .target_modules = {"lm_head"}};
  config.dropout = 0.1;
  CHECK_THROWS_WITH_AS(models::add_lora(*of.model, config, 1), doctest::Contains("no dropout"),
                       ConfigError);
  config.dropout = 0;
  config.dora = true;
  CHECK_THROWS_WITH_AS(models::add_lora(*of.model, config, 1), doctest::Contains("no magnitudes"),
                       ConfigError);
  config.dora = false;
  config.modules_to_save = {"lm_head"};
  CHECK_THROWS_WITH_AS(models::add_lora(*of.model, config, 1), doctest::Contains("trains whole"),
                       ConfigError);
  config.modules_to_save = {"embed_tokens"};
  CHECK_THROWS_AS(models::add_lora(*tied.model, config, 1), ConfigError);
  CHECK_NOTHROW(models::add_lora(*of.model, config, 1));
  // The weight beside the adapter says which model it is for.
  const Directory other("other");
  fs::copy(tied.directory, other.path);
  TensorMap tensors = read_safetensors(tied.directory + "/adapter_model.safetensors");
  const std::string name = "base_model.model.lm_head.base_layer.weight";
  tensors[name] = models::to_view(models::to_tensor(tensors.at(name), at::kFloat) + 1);
  fs::remove(other.path + "/adapter_model.safetensors");
  write_safetensors(other.path + "/adapter_model.safetensors", tensors);
  CHECK_THROWS_WITH_AS(models::load_adapter(*tied.model, other.path),
                       doctest::Contains("for another model"), ConfigError);
}

TEST_CASE("whole modules that an adapter cannot have are refused") {
  const Case of("saved"), tied("saved_tied");
  models::LoraConfig config{.rank = 2, .modules_to_save = {"norm"}};
  CHECK_THROWS_WITH_AS(models::add_lora(*of.model, config, 1),
                       "adapter.modules_to_save: found `norm`, expected some of embed_tokens, "
                       "lm_head",
                       ConfigError);
  // A tied model's embeddings cannot change without its head.
  const Directory untied("untied");
  fs::copy(tied.directory, untied.path);
  TensorMap tensors = read_safetensors(tied.directory + "/adapter_model.safetensors");
  tensors.erase("base_model.model.lm_head.weight");
  fs::remove(untied.path + "/adapter_model.safetensors");
  write_safetensors(untied.path + "/adapter_model.safetensors", tensors);
  Json json = read_json_file(tied.directory + "/adapter_config.json");
  json["ensure_weight_tying"] = false;
  write_file_atomic(untied.path + "/adapter_config.json", json.dump());
  CHECK_THROWS_WITH_AS(models::load_adapter(*tied.model, untied.path),
                       doctest::Contains("ensure_weight_tying"), ConfigError);
  // Either name means the one weight.
  const auto model = models::load_model(tied.base);
  config.modules_to_save = {"lm_head"};
  models::add_lora(*model, config, 1);
  CHECK(models::saved_modules_are(*model, {"embed_tokens"}));
  CHECK(!models::saved_modules_are(*model, {}));
}
