// The GRPO family against an independent computation of its papers' equations
// (tests/golden/make_rl_goldens.py): loss, gradient norm, KL, entropy and clip fraction of every
// update, through the whole program by rl.replay.
#include "tests/golden.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "temper/base/file.h"
#include "temper/base/json.h"
#include "temper/metrics/row.h"
#include "temper/rl/algorithms/algorithm.h"
#include "temper/rl/run.h"
#include "tests/differences.h"
#include "tests/train/tiny.h"

using namespace temper;
namespace fs = std::filesystem;

namespace {

std::vector<MetricsRow> grpo_metrics(const std::vector<std::string>& arguments,
                                     const std::string& output) {
  fs::remove_all(output);
  std::ostringstream console;
  rl::RlConfig config;
  read_run_config(config, arguments, "grpo");
  rl::run_rl(config, {console, false, [] { return false; }});
  return read_metrics_file(output + "/metrics.jsonl");
}

}  // namespace

TEST_CASE("every algorithm's updates are those of its paper") {
  const tiny::Folder folder;
  const Json golden = read_json_file(golden_path("rl.json"), size_t{1} << 24);
  const Json& settings = golden["settings"];
  std::string lines;
  for (const Json& row : golden["rollouts"]) lines += row.dump() + "\n";
  write_file_atomic((folder.path / "rollouts.jsonl").string(), lines);
  for (const std::string& name : rl::algorithms().names()) {
    CAPTURE(name);  // tests/golden/make_rl_goldens.py makes its cases; ppo's are in ppo_golden_test
    const bool known =
        std::any_of(golden["cases"].begin(), golden["cases"].end(),
                    [&](const Json& one) { return one["keys"]["algorithm"] == name; });
    CHECK((known || name == "ppo" || name.starts_with("test_")));
  }
  const std::string output = (folder.path / "out").string();
  for (const Json& one : golden["cases"]) {
    const std::string what = one["keys"].dump();
    CAPTURE(what);
    std::vector<std::string> arguments{
        "output_dir=" + output,
        "model.path=" + golden_path("models/qwen3"),
        "rl.replay=" + (folder.path / "rollouts.jsonl").string(),
        "rl.group_size=" + settings["group_size"].dump(),
        "rl.prompts_per_rollout=" + settings["prompts_per_rollout"].dump(),
        "rollout.temperature=" + settings["temperature"].dump(),
        "rollout.max_new_tokens=" + settings["max_new_tokens"].dump(),
        "optimizer={learning_rate: " + settings["learning_rate"].dump() + ", schedule: constant}",
        "metrics.sinks=[jsonl]"};
    for (const auto& [key, value] : one["keys"].items())
      arguments.push_back("rl." + key + "=" + tiny::as_yaml(value));
    for (const int pass_tokens : {4096, 20}) {  // groups whole, and split over passes
      CAPTURE(pass_tokens);
      std::vector<std::string> all = arguments;
      all.push_back("train.micro_batch_tokens=" + std::to_string(pass_tokens));
      const std::vector<MetricsRow> rows = grpo_metrics(all, output);
      REQUIRE(rows.size() == one["updates"].size());
      for (size_t i = 0; i < rows.size(); ++i) {
        CAPTURE(i);
        const Json& expected = one["updates"][i];
        for (const auto& [name, value] : expected.items()) {
          CAPTURE(name);
          REQUIRE(rows[i].number(name).has_value());
          Differences::add("rl " + what, *rows[i].number(name), value.get<double>());
          // float32 against float64; Adam turns the smallest gradients' noise into whole steps.
          CHECK(*rows[i].number(name) ==
                doctest::Approx(value.get<double>()).epsilon(5e-4).scale(i == 0 ? 1e-2 : 0.1));
        }
        CHECK(rows[i].number("kl").has_value() == expected.contains("kl"));
      }
    }
  }
}
