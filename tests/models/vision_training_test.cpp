// A vision tower that is a part of its model: names, gradients, saved files, features after
// updates.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <doctest/doctest.h>

#include <map>
#include <set>

#include "temper/models/adapters/adapter.h"
#include "temper/models/adapters/adapter_files.h"
#include "temper/models/files/load.h"
#include "temper/models/files/save.h"
#include "temper/models/vision/encoder.h"
#include "temper/models/vision/load.h"
#include "tests/models/golden.h"
#include "tests/vision_golden.h"

using namespace temper;
using vision_golden::Golden;

namespace {

std::unique_ptr<models::CausalLM> with_tower(const Golden& golden, bool projector_alone) {
  models::Storage storage;
  storage.whole = true;
  auto model = models::load_model(golden.directory, storage);
  const models::Tower& tower = model->take_tower();
  model->each_parameter([&](const std::string& name, nn::Parameter& p) {
    p.own();
    const std::string own = models::own_name_in_tower(name);
    p.set_trainable(!models::is_of_tower(*tower.family, name) || !projector_alone ||
                    tower.is_projector(own));
  });
  model->vision->set_trains(true);
  return model;
}

void backward(models::CausalLM& model, const Golden& golden) {
  model.vision->begin_step();
  (-vision_golden::log_probabilities(model, golden, *model.vision).mean()).backward();
  model.vision->end_step();
}

}  // namespace

TEST_CASE("a tower that a model has taken trains with it, or its projector does") {
  for (const std::string& name : vision_golden::names())
    for (const bool projector_alone : {false, true}) {
      CAPTURE(name);
      CAPTURE(projector_alone);
      const Golden golden(name);
      const auto model = with_tower(golden, projector_alone);
      backward(*model, golden);
      int64_t of_tower = 0;
      model->each_parameter([&](const std::string& path, nn::Parameter& p) {
        CAPTURE(path);
        const bool in_tower = models::is_of_tower(*model->tower()->family, path);
        const std::string own = models::own_name_in_tower(path);
        const std::string key = "grad." + (in_tower ? "tower." + own : path);
        if (in_tower) CHECK(path == "model." + own);
        of_tower += in_tower && p.trainable();
        const bool trains = !in_tower || !projector_alone || model->tower()->is_projector(own);
        if (!trains || !golden.has(key)) {
          CHECK((!p.value().grad().defined() || p.value().grad().abs().max().item<double>() == 0));
          return;
        }
        REQUIRE(p.value().grad().defined());
        const at::Tensor expected = golden.tensor(key).view(p.value().sizes());
        CHECK(difference(p.value().grad(), expected) <
              2e-5 * std::max(0.1, expected.abs().max().item<double>()));
      });
      CHECK(of_tower > 0);
    }
}

TEST_CASE("a trained tower is saved under the names and in the shapes of its files") {
  for (const std::string& name : vision_golden::names()) {
    CAPTURE(name);
    const Golden golden(name);
    const auto model = with_tower(golden, false);
    const at::NoGradGuard no_grad;
    const std::string before = golden.directory + "/model.safetensors";
    model->tower()->each_parameter([](const std::string&, nn::Parameter& p) {
      if (!p.trainable()) return;  // a constant
      p.value().add_(0.25);
      p.mark_updated();
    });
    const Directory saved("vision_trained_" + name);
    models::save_weights(*model, saved.path, at::kFloat);
    models::write_model_files({golden.directory, golden.directory, true}, saved.path, at::kFloat);
    const TensorMap old = read_safetensors(before),
                    now = read_safetensors(saved.path + "/model.safetensors");
    CHECK(now.size() == old.size());
    int64_t moved = 0;
    for (const auto& [key, view] : old) {
      CAPTURE(key);
      REQUIRE(now.contains(key));
      REQUIRE(now.at(key).shape == view.shape);
      const at::Tensor a = models::to_tensor(view, at::kFloat),
                       b = models::to_tensor(now.at(key), at::kFloat);
      if (at::equal(a, b)) continue;
      CHECK(models::is_of_tower(*model->tower()->family, key));
      CHECK(at::equal(a + 0.25, b));
      ++moved;
    }
    CHECK(moved > 4);
    models::Encoder read(models::load_tower(saved.path));
    CHECK(at::equal(vision_golden::log_probabilities(*model, golden, read),
                    vision_golden::log_probabilities(*model, golden, *model->vision)));
  }
}

TEST_CASE("features are those of the present weights, computed once between two updates") {
  const at::NoGradGuard no_grad;
  const Golden golden("qwen3_vl");
  const auto model = with_tower(golden, false);
  models::Encoder& encoder = *model->vision;
  const auto features = [&] {
    return encoder.rows(
        {.begin = 0, .count = 6, .digest = "0", .pixels = [&] { return golden.pixels(0); }});
  };
  const at::Tensor first = features().features;
  const auto update = [](nn::Parameter& p) {
    p.value().mul_(1.5);
    p.mark_updated();
  };
  update(model->body().embedding().weight);  // not the tower's
  CHECK(at::equal(features().features, first));
  CHECK(encoder.statistics().computed == 1);
  encoder.begin_step();  // what was sampled with is trained on
  CHECK(features().features.requires_grad());
  encoder.end_step();
  CHECK(encoder.statistics().computed == 1);
  CHECK(encoder.statistics().bytes == 0);
  features();
  model->tower()->each_parameter([&](const std::string&, nn::Parameter& p) { update(p); });
  CHECK(!at::equal(features().features, first));
  CHECK(encoder.statistics().computed == 3);
}

namespace {

// log p of the golden's rows under an adapter; the model computes the features.
at::Tensor seen(models::CausalLM& model, const Golden& golden, int adapter) {
  auto forest = std::make_shared<Forest>();
  std::vector<int64_t> rows, target;
  for (int64_t r = 0; r < golden.num_rows(); ++r) {
    std::vector<ExternalRows> images = golden.rows(r, *model.vision);
    for (ExternalRows& image : images) {
      const int64_t number = image.digest.back() - '0';
      image.features = image.deep = at::Tensor();
      image.source = std::make_shared<models::PixelSource>(
          [&golden, number] { return golden.pixels(number); });
    }
    const std::vector<int32_t> ids = golden.tokens(r);
    const int64_t start = forest->num_tokens();
    forest->add_root(ids, 0, images);
    for (size_t i = 1; i < ids.size(); ++i) {
      rows.push_back(start + static_cast<int64_t>(i) - 1);
      target.push_back(ids[i]);
    }
  }
  const at::Tensor hidden = model.forward({.forest = forest, .adapter = adapter});
  return model.token_logp(hidden, rows, target, {.adapter = adapter}).logp;
}

std::unique_ptr<models::CausalLM> loaded(const Golden& golden) {
  models::Storage storage;
  storage.whole = true;
  return models::load_model(golden.directory, storage);
}

}  // namespace

TEST_CASE("an adapter is on layers of a tower where they are named; the base is without it") {
  const at::NoGradGuard no_grad;
  const std::map<std::string, std::vector<std::string>> targets = {
      {"qwen3_vl", {"q_proj", "attn.qkv", "linear_fc2"}},
      {"qwen2_5_vl", {"q_proj", "merger.mlp.0"}},
      {"gemma3", {"self_attn.v_proj", "fc1"}},
      {"gemma4", {"q_proj", "o_proj.linear", "embedding_projection"}},
      {"lfm2_vl", {"w1", "linear_1"}},
      {"smolvlm", {"q_proj", "modality_projection.proj"}}};
  for (const auto& [name, names] : targets) {
    CAPTURE(name);
    const Golden golden(name);
    const auto base = loaded(golden), model = loaded(golden), again = loaded(golden);
    const at::Tensor before = seen(*base, golden, 0);
    model->take_tower();
    const models::LoraConfig config{.rank = 2, .alpha = 4, .target_modules = names};
    models::add_lora(*model, config, 5);
    CHECK(at::equal(seen(*model, golden, 0), before));
    int64_t of_tower = 0;
    for (const std::string& path : models::adapted_layers(*model))
      of_tower += models::is_of_tower(*model->tower()->family, path);
    CHECK(of_tower > 0);
    model->each_parameter([&](const std::string& path, nn::Parameter& p) {
      if (path.find(".lora_B.") != path.npos) p.set_value(0.1 * at::ones(p.shape()));
    });
    const at::Tensor adapted = seen(*model, golden, 0);
    CHECK(difference(adapted, before) > 1e-3);
    CHECK(at::equal(seen(*model, golden, -1), before));
    const Directory saved("vision_adapter_" + name);
    models::save_adapter(*model, config, golden.directory, saved.path);
    models::load_adapter(*again, saved.path);
    CHECK(models::adapted_layers(*again) == models::adapted_layers(*model));
    CHECK(at::equal(seen(*again, golden, 0), adapted));
    models::merge_adapters(*model);
    CHECK(difference(seen(*model, golden, 0), adapted) < 1e-4);
  }
}

TEST_CASE("all-linear means the language model's layers, and a projector's alone may be named") {
  const Golden golden("qwen3_vl");
  const auto model = loaded(golden);
  model->take_tower().projector_alone = true;
  models::add_lora(*model, {.rank = 2}, 5);
  for (const std::string& path : models::adapted_layers(*model))
    CHECK(!models::is_of_tower(*model->tower()->family, path));
  const auto other = loaded(golden);
  other->take_tower().projector_alone = true;
  models::add_lora(*other, {.rank = 2, .target_modules = {"linear_fc1"}}, 5);
  for (const std::string& path : models::adapted_layers(*other))
    CHECK(path.find("merger") != path.npos);
  CHECK(models::tower_layer(*other) == "visual.merger.linear_fc1");
}
