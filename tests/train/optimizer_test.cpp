// Optimizers against their references (tests/golden/make_optimizer_goldens.py), and what all of
// them promise.
#include "temper/train/optimizers/optimizer.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <omp.h>

#include <cstdlib>
#include <deque>
#include <nlohmann/json.hpp>

#include "temper/base/file.h"
#include "temper/base/json.h"
#include "tests/differences.h"
#include "tests/golden.h"

using namespace temper;
using namespace temper::train;

namespace {

using Shapes = std::vector<std::pair<std::string, std::vector<int64_t>>>;

// numbers() of the script.
at::Tensor numbers(const std::vector<int64_t>& shape, uint64_t seed) {
  at::Tensor x = at::empty(shape, at::kFloat);
  for (uint64_t i = 0; i < static_cast<uint64_t>(x.numel()); ++i)
    x.mutable_data_ptr<float>()[i] = static_cast<float>(
        static_cast<double>((i * 2654435761 + seed * 97003 + i * i * 40503) % 65536) / 32768 - 0.7);
  return x;
}

struct Parameters : nn::Module {
  explicit Parameters(const Shapes& shapes) {
    for (const auto& [name, shape] : shapes) {
      nn::Parameter& p = all.emplace_back(*this, name, shape, nn::Init{});
      p.set_value(numbers(shape, 1000));
      p.set_trainable(true);
    }
  }
  void set_gradients(uint64_t step) {
    for (nn::Parameter& p : all) p.value().mutable_grad() = numbers(p.shape(), step);
  }
  std::deque<nn::Parameter> all;
};

OptimizerSection section(const std::string& keys) {
  OptimizerSection out;
  read_fields(parse_yaml(keys, "golden"), "optimizer", Fields::of(out));
  out.learning_rate = 1e-2;
  out.weight_decay = 0.1;
  return out;
}

void steps(Optimizer& optimizer, Parameters& parameters, uint64_t first, uint64_t end) {
  for (uint64_t step = first; step < end; ++step) {
    parameters.set_gradients(step);
    optimizer.step(1e-2, 1.0);
  }
}

const Shapes kShapes = {{"wide", {10, 24}}, {"tall", {24, 10}},  {"large", {65, 64}},
                        {"vector", {17}},   {"narrow", {30, 8}}, {"parallel", {200, 180}}};

}  // namespace

TEST_CASE("ten steps of every optimizer are its reference's") {
  const Json golden = read_json_file(golden_path("optimizers.json"), size_t{1} << 24);
  for (const std::string& name : optimizers().names()) {
    CAPTURE(name);  // tests/golden/make_optimizer_goldens.py makes its cases
    CHECK((name.starts_with("test_") ||
           std::any_of(golden.begin(), golden.end(),
                       [&](const Json& one) { return one["keys"]["name"] == name; })));
  }
  for (const Json& one : golden) {
    std::string keys;
    for (const auto& [key, value] : one["keys"].items()) {
      const size_t dot = key.find('.');
      keys += dot == std::string::npos
                  ? key + ": " + value.dump() + "\n"
                  : str(key.substr(0, dot), ": {", key.substr(dot + 1), ": ", value.dump(), "}\n");
    }
    CAPTURE(keys);
    Shapes shapes;
    for (const auto& [name, shape] : one["shapes"].items())
      shapes.emplace_back(name, shape.get<std::vector<int64_t>>());
    Parameters parameters(shapes);
    Optimizer optimizer(section(keys), trainable_parameters(parameters));
    steps(optimizer, parameters, 0, 10);
    // Where torch orthogonalises in bfloat16, its rounding is in the golden numbers.
    const bool bfloat16 = one.contains("bfloat16");
    CAPTURE(bfloat16);
    for (const NamedParameter& p : optimizer.parameters()) {
      CAPTURE(p.name);
      const std::vector<float> expected = one["values"][p.name];
      const at::Tensor found = p.parameter->value().detach().flatten();
      double largest = 0;
      for (size_t i = 0; i < expected.size(); ++i)
        largest =
            std::max(largest, std::abs(double{found.const_data_ptr<float>()[i]} - expected[i]));
      Differences::add("optimizer " + one["keys"].dump(), largest, 0);
      CHECK(largest < (bfloat16 ? 1e-3 : 2e-6));
    }
  }
}

TEST_CASE("an optimizer that goes on from its saved state makes the same steps, to the bit") {
  for (const auto& entry : optimizers().list()) {
    CAPTURE(entry.name);
    const OptimizerSection config =
        section("name: " + entry.name + (entry.value.momentum ? "\nmomentum: 0.9" : ""));
    Parameters whole(kShapes), parts(kShapes);
    Optimizer one(config, trainable_parameters(whole)), before(config, trainable_parameters(parts)),
        after(config, trainable_parameters(parts));
    steps(one, whole, 0, 6);
    steps(before, parts, 0, 3);
    after.load(before.save(), before.steps(), "checkpoint");
    steps(after, parts, 3, 6);
    for (size_t i = 0; i < kShapes.size(); ++i)
      CHECK(at::equal(whole.all[i].value(), parts.all[i].value()));
  }
}

TEST_CASE("the bits of an update do not depend on the number of threads" *
          doctest::test_suite("exact")) {
  const int threads = omp_get_max_threads();
  for (const auto& entry : optimizers().list()) {
    CAPTURE(entry.name);
    std::vector<std::unique_ptr<Parameters>> results;
    for (const int count : {1, 3}) {
      omp_set_num_threads(count);
      results.push_back(std::make_unique<Parameters>(kShapes));
      Optimizer optimizer(section("name: " + entry.name), trainable_parameters(*results.back()));
      steps(optimizer, *results.back(), 0, 3);
    }
    for (size_t i = 0; i < kShapes.size(); ++i)
      CHECK(at::equal(results[0]->all[i].value(), results[1]->all[i].value()));
  }
  omp_set_num_threads(threads);
}

TEST_CASE("every optimizer scales the gradient by the clipping factor and survives a zero one") {
  for (const auto& entry : optimizers().list()) {
    CAPTURE(entry.name);
    const OptimizerSection config = section("name: " + entry.name);
    Parameters halved(kShapes), scaled(kShapes);
    Optimizer one(config, trainable_parameters(halved)),
        other(config, trainable_parameters(scaled));
    for (uint64_t step = 0; step < 2; ++step) {
      halved.set_gradients(step);
      scaled.set_gradients(step);
      for (nn::Parameter& p : halved.all) p.value().mutable_grad() = p.value().grad() * 0.5;
      one.step(1e-2, 1.0);
      other.step(1e-2, 0.5);
    }
    one.step(1e-2, 1.0);  // without gradients
    other.step(1e-2, 1.0);
    for (size_t i = 0; i < kShapes.size(); ++i) {
      CHECK(at::equal(halved.all[i].value(), scaled.all[i].value()));
      CHECK(at::isfinite(halved.all[i].value()).all().item<bool>());
    }
  }
}

TEST_CASE("moments in 8 bits take a quarter of the memory; small parameters keep float32") {
  const auto rule = optimizers().find("adamw8bit").make(OptimizerSection());
  CHECK(rule->state(nn::Role::kMlp, {63, 65}).size() == 2);
  const std::vector<StateTensor> state = rule->state(nn::Role::kMlp, {65, 64});
  REQUIRE(state.size() == 4);
  CHECK((state[0].dtype == at::kByte));  // doctest cannot print it
  CHECK(state[2].shape == std::vector<int64_t>{17});
}

TEST_CASE("muon orthogonalizes hidden matrices; embeddings, heads and vectors are AdamW's") {
  using nn::Role;
  const auto rule = optimizers().find("muon").make(section("name: muon"));
  const auto is_adamw = [&](Role role, const std::vector<int64_t>& shape) {
    CHECK(rule->by_element(role, shape) == (rule->state(role, shape).size() == 2));
    return rule->by_element(role, shape);
  };
  for (const Role role : {Role::kNone, Role::kAttention, Role::kMlp, Role::kExpert, Role::kRouter})
    CHECK(!is_adamw(role, {30, 8}));
  CHECK(is_adamw(Role::kEmbedding, {30, 8}));
  CHECK(is_adamw(Role::kHead, {30, 8}));
  CHECK(is_adamw(Role::kAttention, {30}));
  CHECK(is_adamw(Role::kMlp, {1, 30}));
}

TEST_CASE("state of another optimizer is refused, and what there was is kept") {
  const Shapes shapes = {{"large", {65, 64}}};
  Parameters parameters(shapes);
  const auto all = [&] { return trainable_parameters(parameters); };
  Optimizer wide(section("name: adamw"), all()), narrow(section("name: adamw8bit"), all()),
      lion(section("name: lion"), all());
  CHECK_THROWS_WITH(wide.load(narrow.save(), 1, "step-1"),
                    "step-1: `large.first` is U8; the checkpoint is of another optimizer.name");
  CHECK_THROWS_WITH(wide.load(lion.save(), 1, "step-1"),
                    "step-1: `large.second` is missing or of another shape; the checkpoint is of "
                    "another run");
  CHECK(wide.steps() == 0);
}
