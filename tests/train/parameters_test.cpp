// Parameters chosen by name: rates and decay of their own, freezing.
#include "temper/train/roles/parameters.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include "temper/base/error.h"
#include "temper/nn/linear.h"
#include "temper/train/optimizers/optimizer.h"
#include "temper/train/roles/policy.h"
#include "temper/train/sft/sft.h"
#include "tests/golden.h"

using namespace temper;
using namespace temper::train;

namespace {

struct Layer : nn::Module {
  Layer(nn::Module& parent, std::string name)
      : Module(parent, std::move(name)), proj(*this, "proj", 3, 2, true, 0.02) {}
  nn::Linear proj;
};

struct Model : nn::Module {
  Model() : embed_tokens(*this, "embed_tokens", 5, 3, 0.02), layers(*this, "layers") {
    for (int i = 0; i < 2; ++i) layers.emplace();
    each_parameter([](const std::string&, nn::Parameter& p) {
      p.set_value(at::ones(p.shape(), at::kFloat));
      p.set_trainable(true);
    });
  }
  nn::Embedding embed_tokens;
  nn::ModuleList<Layer> layers;
};

std::vector<std::string> names(nn::Module& model) {
  std::vector<std::string> out;
  for (const NamedParameter& p : trainable_parameters(model)) out.push_back(p.name);
  return out;
}

std::vector<NamedParameter> grouped(Model& model, const std::vector<ParameterGroup>& groups,
                                    double rate = 1e-3) {
  std::vector<NamedParameter> parameters = trainable_parameters(model);
  apply_groups(groups, rate, parameters, "optimizer.groups");
  return parameters;
}

}  // namespace

TEST_CASE("the first group that matches decides") {
  Model model;
  const auto parameters =
      grouped(model, {{"embed*", 1e-4, 0.0}, {"*.bias", std::nullopt, 0.5}, {"*", 2e-3, {}}});
  CHECK(parameters[0].rate_scale == 1e-4 / 1e-3);
  CHECK(parameters[0].weight_decay == 0.0);
  CHECK(parameters[1].rate_scale == 2e-3 / 1e-3);
  CHECK_FALSE(parameters[1].weight_decay);
  CHECK(parameters[2].rate_scale == 1);
  CHECK(parameters[2].weight_decay == 0.5);
}

TEST_CASE("groups change rate and decay of their parameters alone") {
  Model model, plain;
  OptimizerSection config;
  config.learning_rate = 1e-2;
  config.weight_decay = 0.1;
  Optimizer other(config, trainable_parameters(plain));
  config.groups = {{"embed*", 0.0, {}}, {"*.1.proj.bias", {}, 1.0}};
  Optimizer optimizer(config, trainable_parameters(model));
  for (Optimizer* o : {&optimizer, &other}) {
    for (const NamedParameter& p : o->parameters())
      p.parameter->value().mutable_grad() = at::ones(p.parameter->shape(), at::kFloat);
    o->step(1e-2, 1.0);
  }
  CHECK(at::equal(model.embed_tokens.weight.value(), at::ones({5, 3})));
  CHECK(at::equal(model.layers[0].proj.weight.value(), plain.layers[0].proj.weight.value()));
  CHECK(at::equal(model.layers[0].proj.bias->value(), plain.layers[0].proj.bias->value()));
  CHECK(
      (model.layers[1].proj.bias->value() < plain.layers[1].proj.bias->value()).all().item<bool>());
}

TEST_CASE("a group that matches nothing is an error that names what is near") {
  Model model;
  CHECK_THROWS_WITH_AS(grouped(model, {{"*", {}, {}}, {"*.proj.wieght", {}, {}}}),
                       "optimizer.groups[1].match: `*.proj.wieght` matches no parameter that "
                       "trains; did you mean `weight` for `wieght`?",
                       ConfigError);
  CHECK_THROWS_WITH_AS(grouped(model, {{"proj.*", {}, {}}}),
                       "optimizer.groups[0].match: `proj.*` matches no parameter that trains; a "
                       "name is as `embed_tokens.weight`",
                       ConfigError);
  CHECK_THROWS_AS(grouped(model, {{"*", 1e-3, {}}}, 0), ConfigError);
}

TEST_CASE("frozen parameters do not train, and some must be left") {
  Model model;
  freeze_parameters(model, {"layers.0.*", "embed*"}, "train.freeze");
  CHECK(names(model) == std::vector<std::string>{"layers.1.proj.weight", "layers.1.proj.bias"});
  CHECK_THROWS_WITH_AS(freeze_parameters(model, {"layer.1.*"}, "run.yaml:3: train.freeze"),
                       "run.yaml:3: train.freeze: `layer.1.*` matches no parameter that trains; "
                       "did you mean `layers` for `layer`?",
                       ConfigError);
  CHECK_THROWS_WITH_AS(freeze_parameters(model, {"*.weight", "*.bias"}, "train.freeze"),
                       "train.freeze: all 2 parameters are frozen: nothing is left to train",
                       ConfigError);
}

TEST_CASE("LoRA+ raises the rate of B, and of DoRA's magnitudes") {
  Model model;
  model.layers[0].proj.add_lora(2, 1, 0, 1, true);
  model.each_parameter([](const std::string& name, nn::Parameter& p) {
    p.set_value(at::ones(p.shape(), at::kFloat));
    p.set_trainable(name.find("lora") != std::string::npos);
  });
  std::vector<NamedParameter> parameters = trainable_parameters(model);
  scale_lora_b(parameters, 16);
  REQUIRE(parameters.size() == 3);
  CHECK(parameters[0].rate_scale == 1);
  CHECK(parameters[1].rate_scale == 16);
  CHECK(parameters[2].name == "layers.0.proj.lora_magnitude_vector.weight");
  CHECK(parameters[2].rate_scale == 16);
}

TEST_CASE("a model whose weights all train holds nothing of its file, constants included") {
  SftConfig config;
  config.model.path = golden_path("models/gemma4_text");
  const Policy policy = load_policy(config);
  REQUIRE(!policy.model->files.files().empty());
  for (const MappedFiles::File& file : policy.model->files.files())
    for (const auto& owner : file.owners) CHECK(owner.expired());
}
