// Every tower against transformers, alone and under its language model.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <set>

#include "temper/base/error.h"
#include "temper/models/vision/encoder.h"
#include "temper/models/vision/load.h"
#include "tests/models/golden.h"
#include "tests/vision_golden.h"

using namespace temper;
using vision_golden::Golden;

namespace {

constexpr double kFeatureTolerance = 5e-6, kImageLogpTolerance = 2e-5;

void show_apart(const std::string& name, const std::string& what, double apart) {
  if (std::getenv("TEMPER_SHOW_DIFFERENCES"))
    std::printf("%s\t%s\t%.1e\n", name.c_str(), what.c_str(), apart);
}

// Of a tensor's largest number, or of 0.1.
double relative(const at::Tensor& found, const at::Tensor& expected) {
  return difference(found, expected) / std::max(0.1, expected.abs().max().item<double>());
}

void train_tower(models::Encoder& encoder) {
  encoder.tower().each_parameter([](const std::string&, nn::Parameter& p) {
    p.own();
    p.set_trainable(true);
  });
  encoder.set_trains(true);
}

}  // namespace

TEST_CASE("features are transformers', for images of several sizes") {
  const at::NoGradGuard no_grad;
  for (const std::string& name : vision_golden::names()) {
    CAPTURE(name);
    const Golden golden(name);
    const auto tower = models::load_tower(golden.directory);
    for (int64_t i = 0; i < golden.num_images(); ++i) {
      const models::ImageFeatures found = tower->forward(golden.pixels(i));
      const double apart = relative(found.rows, golden.tensor(str("features.", i)));
      CHECK(apart < kFeatureTolerance);
      show_apart(name, str("features ", i), apart);
      REQUIRE(found.deep.defined() == golden.has(str("deep.", i)));
      if (!found.deep.defined()) continue;
      CHECK(relative(found.deep, golden.tensor(str("deep.", i))) < kFeatureTolerance);
    }
  }
}

TEST_CASE("log-probabilities of rows with images are transformers'") {
  const at::NoGradGuard no_grad;
  for (const std::string& name : vision_golden::names()) {
    CAPTURE(name);
    const Golden golden(name);
    const auto model = models::load_model(golden.directory);
    models::Encoder encoder(models::load_tower(golden.directory));
    const double apart = difference(vision_golden::log_probabilities(*model, golden, encoder),
                                    golden.tensor("logp"));
    CHECK(apart < kImageLogpTolerance);
    show_apart(name, "log-probability", apart);
    CHECK(encoder.statistics().computed == golden.num_images());
    CHECK(encoder.statistics().reused > 0);
  }
}

TEST_CASE("gradients of the language model and of the tower are transformers'") {
  for (const std::string& name : vision_golden::names()) {
    CAPTURE(name);
    const Golden golden(name);
    const auto model = models::load_model(golden.directory);
    models::Encoder encoder(models::load_tower(golden.directory));
    train_all(*model);
    train_tower(encoder);
    encoder.begin_step();
    (-vision_golden::log_probabilities(*model, golden, encoder).mean()).backward();
    encoder.end_step();
    std::set<std::string> left;
    for (const auto& [key, view] : golden.tensors)
      if (key.starts_with("grad.")) left.insert(key);
    const auto compare = [&](const std::string& key, const nn::Parameter& p) {
      CAPTURE(key);
      if (left.erase(key) == 0) {  // what transformers gives no gradient
        CHECK((!p.value().grad().defined() || p.value().grad().abs().max().item<double>() == 0));
        return;
      }
      REQUIRE(p.value().grad().defined());
      CHECK(relative(p.value().grad(), golden.tensor(key).view(p.value().sizes())) < 2e-5);
    };
    model->each_parameter([&](const std::string& n, nn::Parameter& p) { compare("grad." + n, p); });
    encoder.tower().each_parameter(
        [&](const std::string& n, nn::Parameter& p) { compare("grad.tower." + n, p); });
    CHECK(left.empty());
  }
}

TEST_CASE("a step's gradients of a tower do not depend on how its rows are split into passes") {
  const Golden golden("qwen3_vl");
  models::Encoder encoder(models::load_tower(golden.directory));
  train_tower(encoder);
  const auto gradients = [&](bool twice) {
    std::vector<at::Tensor> out;
    encoder.begin_step();
    const auto read = [&](int64_t image, double by) {
      const ExternalRows rows =
          encoder.rows({.begin = 0, .count = 5, .digest = str(image), .pixels = [&, image] {
                          return golden.pixels(image);
                        }});
      (rows.features.sum() * by + rows.deep.sum() * by).backward();
    };
    if (twice) {
      read(1, 1);
      read(0, 1);
      read(1, 1);
    } else {
      read(0, 1);
      read(1, 2);
    }
    encoder.end_step();
    encoder.tower().each_parameter([&](const std::string&, nn::Parameter& p) {
      out.push_back(p.value().grad().clone());
      p.value().mutable_grad().reset();
    });
    return out;
  };
  const std::vector<at::Tensor> whole = gradients(false), parts = gradients(true);
  for (size_t i = 0; i < whole.size(); ++i) CHECK(at::equal(whole[i], parts[i]));
  CHECK(encoder.statistics().computed == 4);
  CHECK(encoder.statistics().bytes == 0);
}

TEST_CASE("features of a frozen tower are kept up to a limit, and are one image's own bits") {
  const at::NoGradGuard no_grad;
  const Golden golden("qwen3_vl");
  const auto place = [&](int64_t image) {
    return models::PlacedImage{
        .begin = 2, .count = 3, .first = 1, .digest = str(image), .pixels = [&, image] {
          return golden.pixels(image);
        }};
  };
  models::Encoder all(models::load_tower(golden.directory)),
      one(models::load_tower(golden.directory), 1);
  for (const int64_t image : {0, 1, 0, 1, 1}) {
    const ExternalRows a = all.rows(place(image)), b = one.rows(place(image));
    CHECK(at::equal(a.features, b.features));
    CHECK(at::equal(a.deep, b.deep));
    CHECK(a.begin == 2);
    CHECK(a.first == 1);
    CHECK(a.cells() == a.features.size(0));
    CHECK(!a.features.requires_grad());
  }
  CHECK(all.statistics().computed == 2);
  CHECK(one.statistics().computed == 4);
  models::PlacedImage beyond = place(1);
  beyond.count = 5;
  CHECK_THROWS_AS(all.rows(beyond), DataError);
  CHECK(all.tokens("0", {}) == 6);
}

TEST_CASE("pixels of another form, and configs that fit no tower, are refused") {
  const Golden golden("qwen3_vl");
  const auto tower = models::load_tower(golden.directory);
  const auto refused = [&](models::ImagePixels image) {
    CHECK_THROWS_AS(tower->forward(image), DataError);
  };
  models::ImagePixels image = golden.pixels(0);
  refused({image.values, 3, 8});
  refused({image.values, -4, -6});
  refused({image.values, 4, 8});
  refused({image.values.to(at::kDouble), 4, 6});
  refused({{}, 4, 6});
  CHECK(models::vision_family_of(golden_model("qwen3")) == nullptr);
  CHECK_THROWS_AS(models::load_tower(golden_model("qwen3")), ConfigError);
}

TEST_CASE("every tower takes the image's patches, all of them and no others") {
  for (const std::string& name : vision_golden::names()) {
    CAPTURE(name);
    const Golden golden(name);
    const auto tower = models::load_tower(golden.directory);
    models::ImagePixels image = golden.pixels(0);
    const at::Tensor patches = image.values;
    for (const at::Tensor& other :
         {patches.narrow(0, 0, patches.size(0) - 1), at::cat({patches, patches.narrow(0, 0, 1)}),
          patches.narrow(1, 0, patches.size(1) - 1), patches.unsqueeze(0),
          golden.tensor("pixels.0").dim() > 2 ? golden.tensor("pixels.0") : at::Tensor()}) {
      image.values = other;
      CHECK_THROWS_AS(tower->forward(image), DataError);
    }
  }
}

TEST_CASE("the whole model is saved as it was, or its language model alone") {
  for (const std::string& name : vision_golden::names()) {
    CAPTURE(name);
    const Golden golden(name);
    models::Storage storage;
    storage.whole = true;
    const Directory whole("vision_whole_" + name), text("vision_text_" + name);
    {
      const auto model = models::load_model(golden.directory, storage);
      REQUIRE(model->whole == golden.directory);
      models::save_weights(*model, whole.path, at::kFloat);
      models::write_model_files({golden.directory, golden.directory, true}, whole.path, at::kFloat);
    }
    const TensorMap before = read_safetensors(golden.directory + "/model.safetensors"),
                    after = read_safetensors(whole.path + "/model.safetensors");
    CHECK(after.size() == before.size());
    for (const auto& [key, view] : before) {
      CAPTURE(key);
      REQUIRE(after.contains(key));
      REQUIRE(after.at(key).shape == view.shape);
      CHECK(at::equal(models::to_tensor(after.at(key), at::kFloat),
                      models::to_tensor(view, at::kFloat)));
    }
    CHECK(read_json_file(whole.path + "/config.json") ==
          read_json_file(golden.directory + "/config.json"));
    const auto model = models::load_model(golden.directory);
    CHECK(model->whole.empty());
    models::save_weights(*model, text.path, at::kFloat);
    models::write_model_files({golden.directory, golden.directory}, text.path, at::kFloat);
    const Json config = read_json_file(text.path + "/config.json");
    CHECK(!config.contains("vision_config"));
    CHECK(config["model_type"] == models::HfConfig::load(golden.directory).model_type());
    const at::NoGradGuard no_grad;
    const Sequences rows{golden.tokens(1)};
    CHECK(at::equal(log_probabilities(*models::load_model(text.path), rows),
                    log_probabilities(*model, rows)));
  }
}
