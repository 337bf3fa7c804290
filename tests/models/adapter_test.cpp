#include "temper/models/adapters/adapter.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/base/json.h"
#include "temper/models/adapters/adapter_copies.h"
#include "temper/models/adapters/adapter_files.h"
#include "temper/models/files/load.h"
#include "temper/ops/layers/dropout.h"
#include "tests/models/golden.h"

using namespace temper;
namespace fs = std::filesystem;

namespace {

// What load_adapter says of a good adapter whose config has `change` merged into it.
std::string refusal(const Json& change) {
  const std::string base = golden_model("qwen3");
  const fs::path copy = fs::temp_directory_path() / "temper_adapter_test";
  fs::remove_all(copy);
  fs::copy(base + "/adapter", copy);
  Json config = read_json_file(base + "/adapter/adapter_config.json");
  config.merge_patch(change);  // null removes a key
  write_file_atomic((copy / "adapter_config.json").string(), config.dump());
  const auto model = models::load_model(base);
  std::string said;
  try {
    models::load_adapter(*model, copy.string());
  } catch (const ConfigError& error) {
    said = error.what();
  }
  fs::remove_all(copy);
  return said;
}

at::Tensor hidden(models::CausalLM& model, int adapter) {
  const at::NoGradGuard no_grad;
  auto forest = std::make_shared<Forest>();
  forest->add_root(std::vector<int32_t>{3, 1, 4, 1, 5, 9, 2, 6});
  return model.forward({.forest = forest, .adapter = adapter});
}

}  // namespace

TEST_CASE("what an adapter's config asks for and the program does not do is refused by its key") {
  CHECK(refusal({{"peft_type", nullptr}}) == "");  // older files leave it out
  CHECK(refusal({{"alpha_pattern", Json::object()}}) == "");
  CHECK(refusal({{"alpha_pattern", {{"q_proj", 0.5}}}}) == "");
  CHECK(refusal({{"lora_alpha", 2.5}}) == "");
  CHECK(refusal({{"new_config", Json::object()}, {"lora_dtype", "float32"}}) == "");
  CHECK(refusal({{"task_type", "SEQ_CLS"}, {"modules_to_save", {"classifier", "score"}}}) == "");
  for (const auto& [key, value] : {std::pair<const char*, Json>{"peft_type", "IA3"},
                                   {"peft_type", 3},
                                   {"alpha_pattern", {{"q_proj", "32"}}},
                                   {"alpha_pattern", {{"(q_proj", 32}}},
                                   {"alpha_pattern", 3},
                                   {"rank_pattern", {{"q_proj", 0}}},
                                   {"rank_pattern", {{"q_proj", 1.5}}},
                                   {"bias", "all"},
                                   {"lora_alpha", "nan"},
                                   {"lora_alpha", true},
                                   {"lora_dropout", "0.1"},
                                   {"use_rslora", "no"},
                                   {"use_dora", 1},
                                   {"modules_to_save", {"lm_head"}},
                                   {"modules_to_save", 3},
                                   {"target_parameters", {3}},
                                   {"init_lora_weights", "pissa_niter_4"},
                                   {"new_config", {{"rank", 4}}},
                                   {"use_new", true},
                                   {"r", 0}}) {
    const std::string said = refusal({{key, value}});
    CAPTURE(key);
    CAPTURE(said);
    CHECK(said.find("adapter_config.json") != std::string::npos);
    CHECK(said.find("`" + std::string(key) + "`") != std::string::npos);
  }
  // A rank that the tensors do not have.
  CHECK(refusal({{"rank_pattern", {{"q_proj", 3}}}}).find("expected [3, ") != std::string::npos);
}

TEST_CASE("an adapter whose modules_to_save have no tensor is refused by file and name") {
  const std::string said = refusal({{"modules_to_save", {"embed_tokens"}}});
  CHECK(said.find("adapter_config.json: `modules_to_save` names embed_tokens") !=
        std::string::npos);
}

TEST_CASE("a merged adapter is gone, and another can be added") {
  const std::string base = golden_model("qwen3");
  const auto model = models::load_model(base), plain = models::load_model(base);
  const auto names = [](models::CausalLM& m) {
    std::vector<std::string> out;
    m.each_parameter([&](const std::string& name, nn::Parameter&) { out.push_back(name); });
    return out;
  };
  models::load_adapter(*model, base + "/adapter");
  const auto with_adapter = names(*model);
  CHECK(with_adapter.size() > names(*plain).size());
  models::merge_adapters(*model);
  CHECK(names(*model) == names(*plain));
  models::load_adapter(*model, base + "/adapter");
  CHECK(names(*model) == with_adapter);
}

TEST_CASE("the context chooses the base model, its adapter, or a frozen copy of it, to the bit") {
  const std::string base = golden_model("qwen3");
  const auto model = models::load_model(base), plain = models::load_model(base);
  CHECK_THROWS_AS(models::freeze_adapter_copy(*model), RunError);
  models::load_adapter(*model, base + "/adapter");
  const at::Tensor before = hidden(*model, 0);
  CHECK(!at::equal(before, hidden(*plain, 0)));
  CHECK(at::equal(hidden(*model, -1), hidden(*plain, 0)));

  int64_t parameters = 0, with_copy = 0;
  model->each_parameter([&](const std::string&, nn::Parameter&) { ++parameters; });
  REQUIRE(models::freeze_adapter_copy(*model) == 1);
  model->each_parameter([&](const std::string& name, nn::Parameter& p) {
    ++with_copy;
    if (name.find("lora_B") == std::string::npos) return;
    p.value().detach().mul_(2);
    p.mark_updated();
  });
  CHECK(with_copy == parameters);
  REQUIRE(models::freeze_adapter_copy(*model) == 2);
  const at::Tensor after = hidden(*model, 0);
  CHECK(!at::equal(after, before));
  CHECK(at::equal(hidden(*model, 1), before));
  CHECK(at::equal(hidden(*model, 2), after));
  CHECK(at::equal(hidden(*model, -1), hidden(*plain, 0)));
  CHECK_THROWS_AS(hidden(*model, 3), RunError);
}

TEST_CASE("what an adapter's config leaves out is PEFT's default") {
  const std::string base = golden_model("qwen3");
  const fs::path copy = fs::temp_directory_path() / "temper_adapter_defaults_test";
  fs::remove_all(copy);
  fs::copy(base + "/adapter", copy);
  Json config = read_json_file(base + "/adapter/adapter_config.json");
  config.erase("lora_alpha");
  write_file_atomic((copy / "adapter_config.json").string(), config.dump());
  const auto model = models::load_model(base);
  CHECK(models::load_adapter(*model, copy.string()).alpha == 8);
  fs::remove_all(copy);
}

TEST_CASE("target modules that are written are compared with an adapter's own") {
  const std::string base = golden_model("qwen3");
  const auto model = models::load_model(base);
  models::load_adapter(*model, base + "/adapter");
  CHECK(models::targets_are(*model, {"q_proj", "v_proj", "down_proj"}));
  CHECK(models::targets_are(*model, {"down_proj", "self_attn.q_proj", "v_proj"}));
  CHECK(!models::targets_are(*model, {"q_proj", "v_proj"}));
  CHECK(!models::targets_are(*model, {"all-linear"}));
  CHECK_THROWS_AS(models::targets_are(*model, {"nothing"}), ConfigError);
}

// PEFT's forward pass of DoRA in training: with d = dropout(x),
// y = W x + b + (f - 1) W d + f s B A d, where f = m / ||W + s B A||.
TEST_CASE("dropout reaches all of DoRA's correction, and not the base layer") {
  const at::NoGradGuard no_grad;
  const auto numbers = [](at::IntArrayRef shape, double step) {
    return (at::arange(1, at::Tensor(at::empty(shape)).numel() + 1, at::kFloat) * step)
        .sin()
        .reshape(shape)
        .contiguous();
  };
  nn::Module root;
  nn::Linear layer(root, "layer", 7, 6, true, 0.02);
  layer.weight.set_value(numbers({6, 7}, 0.37));
  layer.bias->set_value(numbers({6}, 1.9));
  layer.add_lora(2, 0.7, 0.5, 4, true);
  nn::Lora& lora = *layer.lora();
  lora.lora_A.weight.set_value(numbers({2, 7}, 0.61));
  lora.lora_B.weight.set_value(numbers({6, 2}, 0.83));
  lora.lora_magnitude_vector->weight.set_value(numbers({6}, 0.29));

  nn::DropoutKeys keys{.seed = 3, .step = 2, .token = {5, 6, 7, 8}};
  const at::Tensor x = numbers({4, 7}, 0.11),
                   d = ops::dropout(x, 0.5, keys.seed, keys.step, 4, keys.token);
  REQUIRE(!at::equal(x, d));
  const at::Tensor w = layer.weight.value(),
                   delta = 0.7 * lora.lora_B.weight.value().mm(lora.lora_A.weight.value()),
                   f = lora.lora_magnitude_vector->weight.value() / (w + delta).norm(2, 1);
  const at::Tensor base = x.mm(w.t()) + layer.bias->value();
  const at::Tensor dropped = layer.forward(x, {.dropout = &keys}), plain = layer.forward(x, {});
  CHECK((dropped - (base + d.mm(w.t()) * (f - 1) + d.mm(delta.t()) * f)).abs().max().item<float>() <
        1e-6);
  CHECK((plain - (x.mm((w + delta).t()) * f + layer.bias->value())).abs().max().item<float>() <
        1e-6);
}
