// A reference of its own, and one that follows the policy, on the replayed rollouts of the goldens.
#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "temper/base/file.h"
#include "temper/rl/run.h"
#include "tests/golden.h"
#include "tests/train/tiny.h"

using namespace temper;

namespace {

// The first run, or what continues it, of two batches of two updates each.
std::vector<MetricsRow> followed(const tiny::Folder& folder, const std::string& name,
                                 std::vector<std::string> more) {
  const Json golden = read_json_file(golden_path("rl.json"), size_t{1} << 24);
  std::string lines;
  for (const Json& row : golden["rollouts"]) lines += row.dump() + "\n";
  write_file_atomic(folder / "rollouts.jsonl", lines);
  const std::string output = folder / name;
  std::vector<std::string> arguments{
      "output_dir=" + output,
      "model.path=" + golden_path("models/qwen3"),
      "rl.replay=" + (folder / "rollouts.jsonl"),
      "rl={group_size: 3, prompts_per_rollout: 2, iterations: 2, beta: 0.5}",
      "rollout.max_new_tokens=11",
      "optimizer={learning_rate: 0.03, schedule: constant}",
      "metrics.sinks=[jsonl]"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  std::ostringstream console;
  rl::RlConfig config;
  train::read_run_config(config, arguments, "grpo");
  rl::run_rl(config, {console, false, [] { return false; }});
  return read_metrics_file(output + "/metrics.jsonl");
}

std::vector<double> kl_of(const std::vector<MetricsRow>& rows) {
  std::vector<double> kl;
  for (const MetricsRow& row : rows) kl.push_back(row.number("kl").value());
  return kl;
}

}  // namespace

TEST_CASE("a reference that follows is the policy as the next batch begins") {
  const tiny::Folder folder;
  const std::vector<double> stays = kl_of(followed(folder, "stays", {})),
                            other = kl_of(
                                followed(folder, "other",
                                         {"rl.reference=" + golden_path("models/qwen3"),
                                          "rl.reference_update_every=1", "rl.reference_mix=0"}));
  REQUIRE(stays.size() == 4);
  CHECK(stays[2] > 0.01);
  CHECK(other == stays);  // it is mixed, but with nothing
  const std::vector<double> follows =
      kl_of(followed(folder, "follows", {"rl.reference_update_every=2"}));
  CHECK(follows[1] == stays[1]);  // within a batch it is as the batch began
  CHECK(follows[2] == 0);
  CHECK(follows[3] > 0);
  const std::vector<double> half =
      kl_of(followed(folder, "half", {"rl.reference_update_every=2", "rl.reference_mix=0.5"}));
  CHECK(half[2] > 0);
  CHECK(half[2] < stays[2]);
}

TEST_CASE("a run goes on with the reference that its checkpoint has") {
  const tiny::Folder folder;
  const std::vector<std::string> keys{"rl.reference_update_every=1", "rl.reference_mix=0.3"};
  followed(folder, "whole", keys);
  for (const char* steps : {"1", "2", "3", "4"}) {
    std::vector<std::string> more = keys;
    more.push_back(str("train.max_steps=", steps));
    followed(folder, "parts", more);
  }
  CHECK(tiny::logged(folder / "parts") == tiny::logged(folder / "whole"));
}

TEST_CASE("a reference does not follow an adapter") {
  const tiny::Folder folder;
  CHECK_THROWS_WITH_AS(
      followed(folder, "run", {"rl.reference_update_every=1", "adapter.method=lora"}),
      doctest::Contains("expected 0 with an adapter"), ConfigError);
}
