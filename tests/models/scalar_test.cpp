// Reward models and critics: a body with one number a token, as transformers' sequence classifiers.
#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/base/json.h"
#include "temper/models/adapters/adapter_files.h"
#include "temper/models/files/load.h"
#include "tests/models/golden.h"

using namespace temper;
using models::ScalarModel;
namespace fs = std::filesystem;

namespace {

at::Tensor expected(const std::string& key) {
  static const TensorMap tensors =
      read_safetensors(golden_model("score") + "/expected.safetensors");
  return models::to_tensor(tensors.at(key), at::kFloat);
}

// The number of every token of the golden sequences, all in one forest.
at::Tensor values(ScalarModel& model) {
  const Json json = read_json_file(golden_model("score") + "/expected.json");
  auto forest = std::make_shared<Forest>();
  for (const auto& tokens : json["sequences"].get<std::vector<std::vector<int32_t>>>())
    forest->add_root(tokens);
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < forest->num_tokens(); ++i) rows.push_back(i);
  return model.values(model.forward({.forest = forest}), rows);
}

}  // namespace

TEST_CASE("the numbers of a sequence classifier and their gradients are transformers'") {
  const auto model = models::load_scalar_model(golden_model("score"));
  model->each_parameter([](const std::string&, nn::Parameter& p) {
    p.own();
    p.set_trainable(true);
  });
  const at::Tensor found = values(*model);
  CHECK(difference(found, expected("values")) < 1e-5);
  found.mean().backward();
  model->each_parameter([](const std::string& name, nn::Parameter& p) {
    CAPTURE(name);
    const at::Tensor gradient = expected("grad." + name);
    CHECK(gradient.abs().max().item<float>() > 0);
    CHECK(difference(p.value().grad(), gradient) <
          2e-5 * std::max(0.1f, gradient.abs().max().item<float>()));
  });
}

TEST_CASE("an adapter of a sequence classifier has its own head; both ways are PEFT's") {
  const auto model = models::load_scalar_model(golden_model("score"));
  const models::LoraConfig config =
      models::load_adapter(*model, golden_model("score") + "/adapter");
  CHECK(difference(values(*model), expected("adapter.values")) < 1e-5);
  int64_t trainable = 0;
  model->each_parameter([&](const std::string& name, nn::Parameter& p) {
    trainable += p.trainable();
    CHECK(p.trainable() == (name.find("lora_") != std::string::npos || name == "score.weight"));
  });
  CHECK(trainable > 1);

  const Directory directory("adapter");
  models::save_adapter(*model, config, "base", directory.path);
  const Json saved = read_json_file(directory.path + "/adapter_config.json");
  CHECK(saved["task_type"] == "SEQ_CLS");
  CHECK(saved["modules_to_save"] == Json({"score"}));
  const auto again = models::load_scalar_model(golden_model("score"));
  models::load_adapter(*again, directory.path);
  CHECK(at::equal(values(*again), values(*model)));
}

TEST_CASE("a saved reward model is a sequence classifier with one label") {
  const auto model = models::load_scalar_model(golden_model("score"));
  const Directory directory("saved");
  models::write_model_files({golden_model("qwen3"), golden_model("qwen3")}, directory.path,
                            at::kFloat, models::HeadKind::kScalar);
  models::save_weights(*model, directory.path, at::kFloat);
  const Json saved = read_json_file(directory.path + "/config.json"),
             theirs = read_json_file(golden_model("score") + "/config.json");
  for (const char* key : {"architectures", "id2label", "label2id", "model_type"})
    CHECK(saved[key] == theirs[key]);
  CHECK(at::equal(values(*models::load_scalar_model(directory.path)), values(*model)));
  CHECK_THROWS_WITH_AS(models::load_model(directory.path), doctest::Contains("lm_head.weight"),
                       ConfigError);
}

TEST_CASE("a language model's body gets a fresh head by the seed") {
  const auto one = models::load_scalar_model(golden_model("qwen3"), {}, 7),
             same = models::load_scalar_model(golden_model("qwen3"), {}, 7),
             other = models::load_scalar_model(golden_model("qwen3"), {}, 8);
  CHECK(at::equal(values(*one), values(*same)));
  CHECK(!at::equal(values(*one), values(*other)));
  one->each_parameter([](const std::string& name, nn::Parameter& p) {
    CHECK(name.find("lm_head") == std::string::npos);
    if (name != "score.weight") return;
    const float largest = p.value().abs().max().item<float>();
    CHECK(largest > 0.005f);  // normal around 0 with deviation 0.02
    CHECK(largest < 0.12f);
  });
}

TEST_CASE("a classifier of several labels is refused") {
  const Directory directory("labels");
  fs::copy_file(golden_model("qwen3") + "/config.json", directory.path + "/config.json");
  TensorMap tensors = read_safetensors(golden_model("qwen3") + "/model.safetensors");
  tensors["score.weight"] = models::to_view(at::zeros({3, 24}, at::kFloat));
  write_safetensors(directory.path + "/model.safetensors", tensors);
  CHECK_THROWS_WITH_AS(models::load_scalar_model(directory.path), doctest::Contains("3 labels"),
                       ConfigError);
}

TEST_CASE("padding of a saved reward model is a token that no text ends with") {
  const Directory directory("padding"), saved("padded");
  const auto padding = [&](const Json& end, const Json& pad) {
    Json config = read_json_file(golden_model("qwen3") + "/config.json");
    config["eos_token_id"] = end;
    config["pad_token_id"] = pad;
    write_file_atomic(directory.path + "/config.json", config.dump());
    models::write_model_files({directory.path, directory.path}, saved.path, at::kFloat,
                              models::HeadKind::kScalar);
    return read_json_file(saved.path + "/config.json")["pad_token_id"];
  };
  CHECK(padding(2, 0) == 0);
  CHECK(padding(2, 2).is_null());
  CHECK(padding({3, 2}, 2).is_null());
  CHECK(padding(nullptr, nullptr).is_null());
}
