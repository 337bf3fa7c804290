#include "temper/plan/memory.h"

#include <doctest/doctest.h>

#include "tests/plan/tiny.h"

using namespace temper;
using namespace temper::plan;

namespace {

ModelBytes bytes_of(const ModelRole& role, const Ranks& ranks) {
  return model_bytes(role, train::OptimizerSection(), ranks);  // AdamW: two moments
}

int64_t part(const MemoryPlan::Phase& phase, const std::string& name) {
  for (const auto& [part, bytes] : phase.parts)
    if (part == name) return bytes;
  return 0;
}

const MemoryPlan::Phase& training(const MemoryPlan& plan) { return plan.phases.back(); }

}  // namespace

TEST_CASE("all weights: 16 bytes each, over the ranks that share them out") {
  const ModelRole role = tiny::run().policy;
  const ModelBytes whole = bytes_of(role, {});
  CHECK(whole.weights == 4 * 148);
  CHECK(whole.gradients == 4 * 148);
  CHECK(whole.optimizer == 8 * 148);
  CHECK(whole.two_units == 4 * 80);
  CHECK(bytes_of(role, {.data = 2}).weights == whole.weights);
  const ModelBytes shared = bytes_of(role, {.fsdp = 2});  // all but the norm
  CHECK(shared.weights == 4 * (144 / 2 + 4));
  CHECK(shared.gradients == 4 * (144 / 2 + 4));
  CHECK(shared.optimizer == 8 * (144 / 2 + 4));
  CHECK(shared.two_units == whole.two_units);
  CHECK(bytes_of(role, {.tensor = 2}).weights == 4 * (84 + 64 / 2));
}

TEST_CASE("an adapter trains alone, and its parts follow the layer's") {
  ModelRole role = tiny::run().policy;
  tiny::adapt(role);
  const ModelBytes one = bytes_of(role, {});
  CHECK(one.weights == 4 * (148 + 36));
  CHECK(one.gradients == 4 * 36);
  CHECK(one.optimizer == 8 * 36);
  CHECK(one.two_trained == 0);
  CHECK(bytes_of(role, {.tensor = 2}).gradients == 4 * 3 * (4 + 8 / 2));
  role.adapters = 2;  // the reference's copy
  CHECK(bytes_of(role, {}).weights == 4 * (148 + 2 * 36));
  CHECK(bytes_of(role, {}).gradients == one.gradients);
}

TEST_CASE("frozen weights take the bytes of their format") {
  ModelRole role = tiny::run().policy;
  role.trains = false;
  role.storage.weights = ops::WeightFormat::kBFloat16;
  CHECK(bytes_of(role, {}).weights == 2 * 144 + 4 * 4);
  role.storage.weights = ops::WeightFormat::kFloat32;
  role.storage.blocks = ops::WeightFormat::kInt8;  // and a scale for each row of 4
  CHECK(bytes_of(role, {}).weights == 64 * (1 + 1) + 4 * 84);
  role.storage.blocks = ops::WeightFormat::kNf4;
  CHECK(bytes_of(role, {}).weights == 64 / 2 + 64 + 4 * 84);  // a scale for each row of 4
}

TEST_CASE("a plan's parts are what its phase takes, and its peak the largest phase") {
  constexpr int64_t kProgram = 1000;
  const RunShape run = tiny::run();
  const MemoryPlan plan = plan_memory(run, {}, kProgram);
  for (const MemoryPlan::Phase& phase : plan.phases) {
    CHECK(part(phase, "program") == kProgram);
    CHECK(phase.bytes() <= plan.peak_bytes());
  }
  CHECK(part(training(plan), "weights") == 4 * 148);
  CHECK(part(training(plan), "optimizer") == 8 * 148);
  CHECK(part(training(plan), "gathered") == 0);
  // Of FSDP two units are whole at a time, and four units' gradients are made or on their way.
  const MemoryPlan shared = plan_memory(run, {.fsdp = 2}, kProgram);
  CHECK(part(training(shared), "gathered") == 6 * 4 * 40);
  CHECK(part(training(shared), "weights") < part(training(plan), "weights"));
}

TEST_CASE("recomputation keeps the inputs of blocks alone") {
  RunShape run = tiny::run();
  run.policy.shape.layers = 40;
  const auto activations = [&] { return part(training(plan_memory(run, {}, 0)), "activations"); };
  const int64_t all = activations();
  run.recompute = true;
  const int64_t inputs = activations();
  CHECK(inputs < all);
  CHECK(inputs >= 4 * 40 * 8 * 4);  // float32, blocks, tokens, width
  for (PassShape& pass : run.largest) pass.tokens *= 2;
  CHECK(activations() == 2 * inputs);
}

TEST_CASE("sampling has a phase of its own, with pages for keys and values") {
  RunShape run = tiny::run();
  CHECK(plan_memory(run, {}, 0).phases.size() == 2);
  run.sampling = {.samples = true,
                  .sequences = 8,
                  .prompts = 2,
                  .prompt_tokens = 100,
                  .new_tokens = 100,
                  .cache_bytes = int64_t{1} << 40};
  const MemoryPlan plan = plan_memory(run, {}, 0);
  REQUIRE(plan.phases.size() == 3);
  CHECK(plan.phases[1].name == "sample");
  const int64_t cache = part(plan.phases[1], "cache");
  CHECK(cache >= 8 * 100 * 2 * 2 * 2 * 2 * 4);  // keys and values of 2 layers, 2 heads of 2
  run.sampling.cache_bytes = cache / 2;
  CHECK(part(plan_memory(run, {}, 0).phases[1], "cache") == cache / 2);
}
