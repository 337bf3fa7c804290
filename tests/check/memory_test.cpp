#include "temper/check/memory/memory.h"

#include <doctest/doctest.h>
#include <omp.h>

#include <nlohmann/json.hpp>

#include "temper/check/memory/compared_shape.h"
#include "temper/check/memory/longest_row.h"
#include "tests/check/tiny.h"
#include "tests/models/golden.h"

using namespace temper;
using namespace temper::checks;

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

// Of a model that is run: 8 tokens a pass in 40 blocks of width 4.
RunShape deep_run(int64_t intermediate_size = 8) {
  RunShape run = tiny::run();
  Json config = Json::parse(R"({"model_type": "llama", "vocab_size": 10, "hidden_size": 4,
          "num_hidden_layers": 40, "num_attention_heads": 2, "num_key_value_heads": 2,
          "head_dim": 2})");
  config["intermediate_size"] = intermediate_size;
  run.policy.shape = shape_of(models::HfConfig::parse(config, "deep"));
  return run;
}

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

TEST_CASE("experts and their adapters are divided by the ranks of their axis, all else is whole") {
  ModelRole role = tiny::run().policy;
  role.shape.tensors.push_back({.name = "model.layers.0.mlp.experts.0.down_proj.weight",
                                .shape = {4, 6},
                                .role = nn::Role::kExpert,
                                .unit = 1,
                                .in_block = true,
                                .matrix = true});
  CHECK(bytes_of(role, {.expert = 2}).weights == 4 * (148 + 24 / 2));
  CHECK(bytes_of(role, {.fsdp = 2, .expert = 2}).optimizer == 8 * (144 / 2 + 4 + 24 / 4));
  role.trains = false;
  role.adapted = {"model.layers.0.mlp.experts.0.down_proj"};
  role.rank = 3;
  role.adapters = role.trained_copies = 1;
  CHECK(bytes_of(role, {.expert = 2}).gradients == 4 * 3 * (4 + 6) / 2);
}

TEST_CASE("a critic is shared out by mesh.fsdp alone, a reward model by no ranks") {
  RunShape run = tiny::run();
  ModelRole critic = run.policy, judge = run.policy;
  critic.role = "critic";
  critic.shared_by = SharedBy::kFsdp;
  judge.shared_by = SharedBy::kNone;
  const ModelBytes whole = bytes_of(run.policy, {});
  CHECK(bytes_of(critic, {.tensor = 2}).weights == whole.weights);
  CHECK(bytes_of(critic, {.expert = 2}).optimizer == whole.optimizer);
  CHECK(bytes_of(critic, {.fsdp = 2}).weights == bytes_of(run.policy, {.fsdp = 2}).weights);
  CHECK(bytes_of(judge, {.fsdp = 2}).weights == whole.weights);
  CHECK(bytes_of(judge, {.tensor = 2}).weights == whole.weights);
  // Three heads, which two ranks do not divide, and the policy's own two.
  run = deep_run();
  critic.shape = shape_of(models::HfConfig::parse(Json::parse(R"({"model_type": "llama",
          "vocab_size": 10, "hidden_size": 6, "intermediate_size": 6, "num_hidden_layers": 2,
          "num_attention_heads": 3, "num_key_value_heads": 3, "head_dim": 2})"),
                                                  "three heads"),
                          true);
  run.others.push_back(critic);
  CHECK(part(training(plan_memory(run, {.tensor = 2}, 0)), "critic") ==
        4 * critic.shape.parameters());
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
  role.shape.tensors.push_back({.name = "model.layers.0.mlp.experts.0.down_proj.weight",
                                .shape = {4, 64},
                                .role = nn::Role::kExpert,
                                .unit = 1,
                                .in_block = true,
                                .matrix = true});
  role.storage.blocks = ops::WeightFormat::kMxFp4;  // of experts: a scale for each 32 of a row
  CHECK(bytes_of(role, {}).weights == 256 / 2 + 256 / 32 * 4 + 4 * 148);
  role.storage.blocks.reset();
  role.shape.tensors.back().held = ops::WeightFormat::kQ4_1;  // a float16 scale and minimum
  CHECK(bytes_of(role, {}).weights == 256 / 2 + 256 / 32 * 4 + 4 * 148);
  role.shape.tensors.back().held = ops::WeightFormat::kQ8_0;
  CHECK(bytes_of(role, {}).weights == 256 + 256 / 32 * 2 + 4 * 148);
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

TEST_CASE("a checkpoint in the background is a copy of what trains") {
  RunShape run = tiny::run();
  const MemoryPlan without = plan_memory(run, {}, 0);
  run.snapshot = true;
  const MemoryPlan with = plan_memory(run, {}, 0);
  CHECK(part(training(without), "snapshot") == 0);
  CHECK(part(training(with), "snapshot") == 12 * 148);  // weights and two moments
  CHECK(with.peak_bytes() >= without.peak_bytes() + 12 * 148);
  CHECK(part(training(plan_memory(run, {.fsdp = 2}, 0)), "snapshot") < 12 * 148);
  CHECK(what_takes_less(run).find("train.save_in_background") != std::string::npos);
}

TEST_CASE("recomputation keeps the inputs of blocks alone") {
  RunShape run = deep_run();
  run.largest = {{800, 800, true}};
  const auto all = plan_memory(run, {}, 0);
  run.recompute = true;
  const auto inputs = plan_memory(run, {}, 0);
  CHECK(inputs.peak_bytes() < all.peak_bytes() / 3);
  CHECK(part(training(inputs), "activations") >=
        4 * 40 * 800 * 4);  // float32, blocks, tokens, width
  CHECK(part(training(inputs), "activations") < 4 * 40 * 800 * 4 * 11 / 10);
  run.largest[0].tokens = run.largest[0].targets = 1600;
  CHECK(part(training(plan_memory(run, {}, 0)), "activations") >
        part(training(inputs), "activations") * 19 / 10);
}

TEST_CASE(
    "on a disk, inputs of blocks and the optimizer's state take its bytes instead of memory") {
  RunShape run = deep_run();
  run.largest = {{8000, 8000, true}};
  run.recompute = true;
  const int64_t inputs = 40 * 8000 * 4 * 4;  // blocks, tokens, width, float32
  const MemoryPlan whole = plan_memory(run, {}, 0);
  CHECK(whole.on_disk == 0);
  run.offload_inputs = true;
  const MemoryPlan less = plan_memory(run, {}, 0);
  CHECK(less.on_disk == inputs);
  CHECK(less.peak_bytes() < whole.peak_bytes() - inputs * 9 / 10);
  run.offload_optimizer = true;
  const MemoryPlan least = plan_memory(run, {}, 0);
  CHECK(least.on_disk == inputs + part(training(whole), "optimizer"));
  CHECK(part(training(least), "optimizer") < part(training(whole), "optimizer") / 10);
  run.largest = {{8, 8, true}};  // too small to be written
  CHECK(plan_memory(run, {}, 0).on_disk == part(training(whole), "optimizer"));
}

TEST_CASE("the longest row is the one that just fits") {
  RunShape run = deep_run();
  const auto bytes = [&](int64_t tokens) {
    run.largest = {{tokens, tokens, false, tokens}};
    return plan_memory(run, {}, 0).peak_bytes();
  };
  // Memory grows in steps: what attention takes for each thread, and what the allocator keeps.
  for (const bool offload : {false, true}) {
    run.recompute = run.offload_inputs = offload;
    for (int64_t usable = int64_t{1} << 25; usable < int64_t{1} << 27; usable += usable * 2 / 3) {
      CAPTURE(usable);
      const int64_t found = longest_row(run, {}, 0, usable);
      CHECK(bytes(found) <= usable);
      CHECK(bytes(found * 23 / 20) > usable);  // two digits, within a 32nd
    }
  }
  for (int64_t tokens = 17; tokens < 300; tokens += tokens / 16) {
    CAPTURE(tokens);
    const int64_t usable = bytes(tokens), found = longest_row(run, {}, 0, usable);
    CHECK(bytes(found) <= usable);
    CHECK(found >= tokens * 4 / 5);
  }
  CHECK(longest_row(run, {}, 0, 1000) == 0);
  // longrope, whose longer rows would have other angles: no more than that is taken.
  run.policy.shape = shape_of(models::HfConfig::load(golden_model("phi3")));
  CHECK(longest_row(run, {}, 0, int64_t{1} << 30) == 64);
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

TEST_CASE("who samples while it trains has copies of what trains, and both at once") {
  RunShape run = tiny::run();
  run.sampling = {.samples = true,
                  .sequences = 8,
                  .prompts = 2,
                  .prompt_tokens = 100,
                  .new_tokens = 100,
                  .cache_bytes = int64_t{1} << 40};
  for (const bool adapter : {false, true}) {
    CAPTURE(adapter);
    if (adapter) tiny::adapt(run.policy);
    const int64_t copy = adapter ? 4 * 36 : 4 * 148;
    run.sampling.versions = 0;
    const MemoryPlan in_turn = plan_memory(run, {}, 0);
    CHECK(part(training(in_turn), "sampler") == 0);
    run.sampling.versions = 1;
    const MemoryPlan ahead = plan_memory(run, {}, 0);
    REQUIRE(ahead.phases.size() == 2);
    CHECK(training(ahead).name == "sample and train");
    CHECK(part(training(ahead), "sampler") == copy);
    for (const char* name : {"cache", "packed"})
      CHECK(part(training(ahead), name) == part(in_turn.phases[1], name));
    CHECK(part(training(ahead), "logits") ==
          part(in_turn.phases[1], "logits") + part(training(in_turn), "logits"));
    CHECK(part(training(ahead), "gradients") == part(training(in_turn), "gradients"));
    CHECK(part(training(ahead), "weights") == part(training(in_turn), "weights"));
    CHECK(what_takes_less(run).find("rl.max_staleness") != std::string::npos);
    run.sampling.versions = 3;
    CHECK(part(training(plan_memory(run, {}, 0)), "sampler") == 3 * copy);
  }
}

TEST_CASE("a teacher that samples has a phase and a cache of its own") {
  RunShape run = tiny::run();
  run.sampling = {.samples = true,
                  .sequences = 8,
                  .prompts = 8,
                  .prompt_tokens = 100,
                  .new_tokens = 100,
                  .cache_bytes = int64_t{1} << 40};
  ModelRole teacher{.role = "teacher", .shape = tiny::shape(), .trains = false};
  for (CachedHeads& heads : teacher.shape.cached) heads.number *= 3;
  run.others.push_back(teacher);
  CHECK(plan_memory(run, {}, 0).phases.size() == 3);
  run.others[0].samples = true;
  const MemoryPlan plan = plan_memory(run, {}, 0);
  REQUIRE(plan.phases.size() == 4);
  CHECK(plan.phases[2].name == "sample by teacher");
  CHECK(part(plan.phases[2], "cache") == 3 * part(plan.phases[1], "cache"));
  CHECK(part(plan.phases[2], "teacher") == part(plan.phases[1], "teacher"));
}

TEST_CASE("a GPU's memory holds no program and nothing packed, and attention needs its scratch") {
  RunShape run = tiny::run();
  run.sampling = {.samples = true,
                  .sequences = 8,
                  .prompts = 2,
                  .prompt_tokens = 100,
                  .new_tokens = 100,
                  .cache_bytes = int64_t{1} << 40};
  const MemoryPlan host = plan_memory(run, {}, 1000);
  run.device = at::Device(at::kCUDA, 0);
  const MemoryPlan device = plan_memory(run, {}, 1000);
  CHECK(part(device.phases[0], "file") == 0);
  CHECK(part(host.phases[0], "file") > 0);
  CHECK(part(device.phases[1], "packed") == 0);
  CHECK(part(host.phases[1], "packed") > 0);
  for (const MemoryPlan::Phase& phase : device.phases) {
    CHECK(part(phase, "program") == 0);
    CHECK(part(phase, "context") > 1000);
  }
  CHECK(part(training(device), "weights") == part(training(host), "weights"));
  CHECK(part(training(device), "activations") == part(training(host), "activations"));
  // Longer paths have more scores.
  const auto peak = [&](int64_t longest, at::Device on) {
    RunShape deep = deep_run();
    deep.device = on;
    deep.largest = {{1000, 500, true, longest}};
    return plan_memory(deep, {}, 0).peak_bytes();
  };
  CHECK(peak(800, run.device) > peak(200, run.device) + 4 * 600 * 600);
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  CHECK(peak(800, at::kCPU) < peak(200, at::kCPU) + 4 * 600 * 600);
  omp_set_num_threads(threads);
}

TEST_CASE("what a strategy compares is kept beside the student's pass") {
  ModelShape student = tiny::shape(), teacher = tiny::shape();
  teacher.hidden = 6;
  teacher.heads = 4;
  const auto sum = [](const std::vector<int64_t>& widths) {
    int64_t sum = 0;
    for (const int64_t width : widths) sum += width;
    return sum;
  };
  // Distributions: the teacher's hidden states of the targets alone.
  const ComparedShape logit = compared_shape(distill::Tap::kNone, 0, false, student, teacher);
  CHECK(!logit.every_token);
  CHECK(logit.teacher_hidden == 6);
  CHECK(sum(logit.teacher) + sum(logit.student) + sum(logit.gradients) == 0);
  // Attention: queries and keys of both, 2 x 2 + 2 x 2 and 4 x 2 + 2 x 2 numbers a pair.
  const ComparedShape maps = compared_shape(distill::Tap::kAttention, 2, false, student, teacher);
  CHECK(maps.every_token);
  CHECK(sum(maps.student) == 2 * 8);
  CHECK(sum(maps.teacher) == 2 * 12);
  CHECK(sum(maps.gradients) == 2 * 4);
  CHECK(sum(maps.scratch) == 3 * 8 + 12);
  CHECK(maps.map_heads == 6);
  // Features: averaged to the student's width, or the student's mapped to the teacher's.
  CHECK(sum(compared_shape(distill::Tap::kOutput, 2, false, student, teacher).student) == 2 * 4);
  CHECK(sum(compared_shape(distill::Tap::kOutput, 2, true, student, teacher).student) == 4 * 6);

  // A run holds all of it at its peak, or what of it is largest at once. The peak is an MLP's.
  RunShape run = deep_run(4000);
  run.largest = {{1000, 500, true, 1000}};
  const auto peak = [&](const ComparedShape& compared) {
    run.compared = compared;
    return plan_memory(run, {}, 0).peak_bytes();
  };
  const int64_t alone = peak({});
  CHECK(peak(maps) >= alone + 4 * 1000 * (16 + 24));
  CHECK(peak(logit) >= alone + 4 * 500 * 6);
  ComparedShape whole;
  whole.every_token = true;  // the last block computes all tokens
  CHECK(peak(whole) > alone);
}

TEST_CASE("learned maps train, and have no blocks") {
  RunShape run = tiny::run();
  const auto sum = [&](const char* name) { return part(training(plan_memory(run, {}, 0)), name); };
  const int64_t optimizer = sum("optimizer"), activations = sum("activations");
  ModelRole maps{.role = "projection"};
  maps.shape.tensors = {{.name = "pairs.0.weight", .shape = {6, 4}, .matrix = true}};
  run.others.push_back(maps);
  CHECK(sum("projection") == 4 * 24);
  CHECK(sum("optimizer") == optimizer + 8 * 24);
  CHECK(sum("activations") == activations);
}
