#include "temper/check/memory/mesh_plan.h"

#include <doctest/doctest.h>

#include <set>
#include <tuple>

#include "temper/base/error.h"
#include "tests/check/tiny.h"

using namespace temper;
using namespace temper::checks;

namespace {

// 64 tokens a step in rows of 8.
Machine machine(int64_t devices) {
  return {.devices = devices, .memory = int64_t{1} << 40, .sequence = 8, .step_tokens = 64};
}

constexpr double kAllBytes = 4 * 148, kUnitBytes = 4 * 144;

std::string error_of(const std::string& text) {
  try {
    parse_machine(text);
  } catch (const ConfigError& e) {
    return e.what();
  }
  return {};
}

}  // namespace

TEST_CASE("bytes that a rank sends in a step") {
  // 16 tokens a rank are two passes: weights twice and gradients once in each, then the data axis.
  const MeshCost cost = cost_of(tiny::run(), {.data = 2, .fsdp = 2}, machine(4), 0);
  CHECK(cost.sent_bytes.data == doctest::Approx(2 * 0.5 * kAllBytes / 2));
  CHECK(cost.sent_bytes.fsdp == doctest::Approx(2 * 0.5 * (2 * kUnitBytes + kAllBytes)));
  CHECK(cost.sent_bytes.tensor == 0);
  CHECK(cost.sent() == cost.sent_bytes.data + cost.sent_bytes.fsdp);
  CHECK(cost_of(tiny::run(), {}, machine(1), 0).sent() == 0);

  // Two sums forward and two backward in each of two blocks, one of the embedding, one of the head.
  RunShape run = tiny::run();
  const auto tensor_bytes = [&] {
    return cost_of(run, {.tensor = 2}, machine(2), 0).sent_bytes.tensor;
  };
  CHECK(tensor_bytes() == doctest::Approx(2 * 0.5 * (4 * 2 + 2) * 64 * 4 * 4));
  run.recompute = true;
  CHECK(tensor_bytes() == doctest::Approx(2 * 0.5 * (6 * 2 + 2) * 64 * 4 * 4));
}

TEST_CASE("ranks that divide rows send keys and values, and sum gradients with the replicas") {
  RunShape run = tiny::run();
  run.policy.shape.gathered = 12;
  const auto sent = [&](const Ranks& ranks) {
    return cost_of(run, ranks, machine(4), 0).sent_bytes;
  };
  // 64 tokens a step, whose keys and values are gathered once and whose gradients are summed once.
  CHECK(sent({.context = 2}).context == doctest::Approx(kAllBytes + 0.5 * 2 * 64 * 12 * 4));
  CHECK(sent({.data = 2, .context = 2}).data == doctest::Approx(kAllBytes));
  CHECK(sent({.data = 2, .context = 2}).context ==
        doctest::Approx((1.5 - 1) * kAllBytes + 0.5 * 2 * 32 * 12 * 4));
  run.recompute = true;
  CHECK(sent({.context = 2}).context == doctest::Approx(kAllBytes + 0.5 * 3 * 64 * 12 * 4));
  Machine long_rows = machine(4);
  std::set<int64_t> planned;
  const auto plan = [&](int64_t sequence) {
    planned.clear();
    long_rows.sequence = sequence;
    for (const MeshCost& c : plan_meshes(run, long_rows, 0)) planned.insert(c.ranks.context);
    return planned;
  };
  CHECK((plan(4000) == std::set<int64_t>{1}));
  CHECK((plan(16384) == std::set<int64_t>{1, 2, 4}));
}

TEST_CASE("ranks that divide the experts hand on two sums a layer, and compute the rest each") {
  RunShape run = tiny::run();
  run.policy.shape.experts = 4;
  run.policy.shape.experts_per_token = 2;
  for (int e = 0; e < 4; ++e)
    run.policy.shape.tensors.push_back(
        {.name = str("model.layers.0.mlp.experts.", e, ".down_proj.weight"),
         .shape = {4, 6},
         .role = nn::Role::kExpert,
         .unit = 1,
         .in_block = true,
         .matrix = true});
  const MeshCost cost = cost_of(run, {.expert = 2}, machine(2), 0);
  CHECK(cost.sent_bytes.expert == doctest::Approx(2 * 0.5 * 2 * 64 * 4 * 4));
  CHECK(cost.sent() == cost.sent_bytes.expert);
  const double dense = step_flops(tiny::run(), 64, 8), experts = 64 * 6 * 2 * 24;
  CHECK(step_flops(run, 64, 8) == doctest::Approx(dense + experts));
  CHECK(step_flops(run, 64, 8, 2) == doctest::Approx(2 * dense + experts));
  std::set<int64_t> planned;
  for (const MeshCost& c : plan_meshes(run, machine(4), 0)) planned.insert(c.ranks.expert);
  CHECK((planned == std::set<int64_t>{1, 2, 4}));
}

TEST_CASE("a tied embedding is gathered for the head as well, and has two gradients") {
  RunShape run = tiny::run();
  run.policy.shape.tensors.pop_back();
  run.policy.shape.tied = true;
  run.largest = {{64, 64, true}};
  const MeshCost cost = cost_of(run, {.fsdp = 2}, machine(2), 0);
  const double embedding = 4 * 40;
  CHECK(cost.sent_bytes.fsdp ==
        doctest::Approx(0.5 * (2 * kUnitBytes + kAllBytes - embedding + embedding)));
}

TEST_CASE("under an adapter its gradients travel, and the frozen weights are gathered") {
  RunShape run = tiny::run();
  tiny::adapt(run.policy);
  run.largest = {{64, 64, true}};
  CHECK(cost_of(run, {.data = 2}, machine(2), 0).sent_bytes.data == doctest::Approx(4 * 36));
  CHECK(cost_of(run, {.fsdp = 2}, machine(2), 0).sent_bytes.fsdp ==
        doctest::Approx(0.5 * (2 * kUnitBytes + 4 * 36)));
  // The blocks' 64 weights in int8, with a scale for each of 16 rows; embedding and head in
  // float32.
  run.policy.storage.blocks = ops::WeightFormat::kInt8;
  CHECK(cost_of(run, {.fsdp = 2}, machine(2), 0).sent_bytes.fsdp ==
        doctest::Approx(0.5 * (2 * (4 * 80 + 64 + 4 * 16) + 4 * 36)));
}

TEST_CASE("operations of a step") {
  RunShape run = tiny::run();
  const double weights = 2 * 32 + 40, attention = 4 * 2 * 2 * 2 * 8 / 2;
  CHECK(step_flops(run, 64, 8) == doctest::Approx(64 * (6 * weights + 3 * attention)));
  run.recompute = true;
  CHECK(step_flops(run, 64, 8) == doctest::Approx(64 * (8 * weights + 4 * attention)));
  tiny::adapt(run.policy);
  run.recompute = false;
  CHECK(step_flops(run, 64, 8) == doctest::Approx(64 * (4 * weights + 3 * attention)));
}

TEST_CASE("seconds: within a host and between hosts, hidden and in turn") {
  Machine m = machine(4);
  CHECK_FALSE(cost_of(tiny::run(), {.data = 2, .fsdp = 2}, m, 0).compute.has_value());
  m.per_host = 2;
  m.bandwidth = 1000;
  m.network = 100;
  m.flops = step_flops(tiny::run(), 64, 8) / 4;  // a second on four devices
  const MeshCost cost = cost_of(tiny::run(), {.data = 2, .fsdp = 2}, m, 0);
  const double fsdp = cost.sent_bytes.fsdp / 1000, data = cost.sent_bytes.data / 100;
  CHECK(cost.compute.value() == doctest::Approx(1));
  CHECK(cost.communication.value() == doctest::Approx(fsdp + data));
  CHECK(cost.overlapped.value() == doctest::Approx(std::max(1.0, fsdp) + data));
  CHECK(cost.in_turn.value() == doctest::Approx(1 + fsdp + data));
}

TEST_CASE("meshes: all that the model divides by, those that fit first") {
  RunShape run = tiny::run();
  Machine m = machine(4);
  const auto axes = [&] {
    std::set<std::tuple<int64_t, int64_t, int64_t>> found;
    for (const MeshCost& c : plan_meshes(run, m, 0))
      found.emplace(c.ranks.data, c.ranks.fsdp, c.ranks.tensor);
    return found;
  };
  using Axes = std::set<std::tuple<int64_t, int64_t, int64_t>>;
  CHECK((axes() == Axes{{4, 1, 1}, {2, 2, 1}, {1, 4, 1}, {2, 1, 2}, {1, 2, 2}}));  // two heads
  run.policy.storage.blocks = ops::WeightFormat::kNf4;
  CHECK((axes() == Axes{{4, 1, 1}, {2, 2, 1}, {1, 4, 1}}));
  run.policy.storage.blocks = ops::WeightFormat::kMxFp4;
  CHECK((axes() == Axes{{4, 1, 1}, {2, 2, 1}, {1, 4, 1}}));
  run.policy.storage.blocks.reset();
  run.policy.shape.tensors[0].held = ops::WeightFormat::kQ4K;
  CHECK((axes() == Axes{{4, 1, 1}, {2, 2, 1}, {1, 4, 1}}));
  run.policy.shape.tensors[0].held.reset();
  run.policy.shape.kv_heads = 1;
  CHECK((axes() == Axes{{4, 1, 1}, {2, 2, 1}, {1, 4, 1}}));

  run.policy.shape.tensors[0].shape = {1 << 20, 4};  // memory is weights
  m.memory = (cost_of(run, {.data = 4}, m, 0).memory.peak_bytes() +
              cost_of(run, {.fsdp = 4}, m, 0).memory.peak_bytes()) /
             2;
  const std::vector<MeshCost> costs = plan_meshes(run, m, 0);
  for (const MeshCost& cost : costs)
    if (cost.ranks.data == 4 || cost.ranks.fsdp == 4) CHECK(cost.fits == (cost.ranks.fsdp == 4));
  for (size_t i = 1; i < costs.size(); ++i) CHECK(costs[i - 1].fits >= costs[i].fits);
}

TEST_CASE("what --mesh says") {
  const Machine m = parse_machine(
      "devices=64,memory=80GiB,bandwidth=400GB/s,network=200Gbit/s,flops=312TFLOPS,sequence=8k,"
      "bytes=2");
  CHECK(m.devices == 64);
  CHECK(m.memory == int64_t{80} << 30);
  CHECK(m.bandwidth == 4e11);
  CHECK(m.network == 25e9);
  CHECK(m.flops == 312e12);
  CHECK(m.sequence == 8000);
  CHECK(m.number_bytes == 2);
  CHECK(parse_machine("devices=1").memory > 0);  // this machine's
  CHECK(error_of("device=8").find("did you mean `devices`?") != std::string::npos);
  CHECK(error_of("devices").find("expected KEY=NUMBER") != std::string::npos);
  CHECK(error_of("memory=80GiB").find("expected devices=N") != std::string::npos);
  CHECK(error_of("devices=8,memory=80XB").find("memory: found `80XB`") != std::string::npos);
  CHECK(error_of("devices=0").find("above 0") != std::string::npos);
  CHECK(error_of("devices=8,memory=80").find("memory: found 80, which is too small") !=
        std::string::npos);
  CHECK(error_of("devices=8,flops=312").find("for example 312TFLOPS") != std::string::npos);
  CHECK(error_of("").find("expected devices=N") != std::string::npos);
  CHECK(error_of("devices=8,bytes=9").find("bytes: expected 1 to 8") != std::string::npos);
}
