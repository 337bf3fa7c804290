// A vision tower that is a part of its model: names, gradients, saved files, features after
// updates.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <doctest/doctest.h>

#include <set>

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
