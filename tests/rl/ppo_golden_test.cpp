// PPO against an independent computation (tests/golden/make_ppo_goldens.py), through the whole
// program by rl.replay: the metrics of every update, and the gradients of policy and critic.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "temper/base/file.h"
#include "temper/io/safetensors.h"
#include "temper/models/files/tensors.h"
#include "temper/rl/run.h"
#include "tests/differences.h"
#include "tests/golden.h"
#include "tests/train/tiny.h"

using namespace temper;

namespace {

std::vector<MetricsRow> ppo_metrics(const std::vector<std::string>& arguments,
                                    const std::string& output) {
  std::filesystem::remove_all(output);
  std::ostringstream console;
  rl::PpoConfig config;
  read_run_config(config, arguments, "ppo");
  rl::run_ppo(config, {console, false, [] { return false; }});
  return read_metrics_file(output + "/metrics.jsonl");
}

// The arguments of a golden case but its optimizer.
std::vector<std::string> arguments_of(const Json& golden, const Json& one,
                                      const tiny::Folder& folder) {
  const Json& settings = golden["settings"];
  std::string lines;
  for (const Json& row : golden["rollouts"]) lines += row.dump() + "\n";
  write_file_atomic(folder / "rollouts.jsonl", lines);
  std::vector<std::string> arguments{
      "output_dir=" + (folder / "out"),
      "model.path=" + golden_path("models/qwen3"),
      "ppo.critic=" + golden_path("models/score"),
      "rl.replay=" + (folder / "rollouts.jsonl"),
      "rl.prompts_per_rollout=" + settings["prompts_per_rollout"].dump(),
      "rollout.temperature=" + settings["temperature"].dump(),
      "rollout.max_new_tokens=" + settings["max_new_tokens"].dump(),
      "metrics.sinks=[jsonl]"};
  for (const char* section : {"rl", "ppo"})
    for (const auto& [key, value] : one[section].items())
      arguments.push_back(str(section, ".", key, "=", tiny::as_yaml(value)));
  return arguments;
}

// Of every tensor of the optimizer's momentum: its norm, and its product with cos(0), cos(1), ...
void check_gradients(const std::string& file, const Json& expected) {
  const TensorMap tensors = read_safetensors(file);
  CHECK(tensors.size() == expected.size());
  for (const auto& [name, numbers] : expected.items()) {
    CAPTURE(name);
    REQUIRE(tensors.contains(name + ".first"));
    const at::Tensor g = models::to_tensor(tensors.at(name + ".first"), at::kDouble).flatten();
    const double norm = g.norm().item<double>();
    CHECK(norm == doctest::Approx(numbers[0].get<double>()).epsilon(2e-5).scale(0.1));
    const double product = (g * at::arange(g.numel(), at::kDouble).cos()).sum().item<double>();
    CHECK(product == doctest::Approx(numbers[1].get<double>()).epsilon(2e-5).scale(1));
  }
}

}  // namespace

TEST_CASE("ppo's updates are those of the papers") {
  const tiny::Folder folder;
  const Json golden = read_json_file(golden_path("ppo.json"), size_t{1} << 24);
  for (const Json& one : golden["cases"]) {
    const std::string what = one["rl"].dump() + one["ppo"].dump();
    CAPTURE(what);
    for (const int pass_tokens : {4096, 20}) {
      CAPTURE(pass_tokens);
      std::vector<std::string> arguments = arguments_of(golden, one, folder);
      arguments.push_back("optimizer={schedule: constant, learning_rate: " +
                          golden["settings"]["learning_rate"].dump() +
                          ", max_grad_norm: " + one["max_grad_norm"].dump() + "}");
      arguments.push_back("train.micro_batch_tokens=" + std::to_string(pass_tokens));
      const std::vector<MetricsRow> rows = ppo_metrics(arguments, folder / "out");
      REQUIRE(rows.size() == one["updates"].size());
      for (size_t i = 0; i < rows.size(); ++i) {
        CAPTURE(i);
        const Json& expected = one["updates"][i];
        for (const auto& [name, value] : expected.items()) {
          CAPTURE(name);
          REQUIRE(rows[i].number(name).has_value());
          Differences::add("ppo " + what, *rows[i].number(name), value.get<double>());
          // float32 against float64; Adam turns the smallest gradients' noise into whole steps.
          CHECK(*rows[i].number(name) ==
                doctest::Approx(value.get<double>()).epsilon(5e-4).scale(i == 0 ? 1e-2 : 0.1));
        }
        CHECK(rows[i].number("kl").has_value() == expected.contains("kl"));
        CHECK_FALSE(rows[i].number("loss/kl").has_value());
      }
    }
  }
}

TEST_CASE("the gradients of policy and critic are the golden ones") {
  const tiny::Folder folder;
  const Json golden = read_json_file(golden_path("ppo.json"), size_t{1} << 24);
  for (const Json& one : golden["cases"]) {
    const std::string what = one["rl"].dump() + one["ppo"].dump();
    CAPTURE(what);
    std::vector<std::string> arguments = arguments_of(golden, one, folder);
    // The first momentum is the gradient.
    arguments.insert(arguments.end(), {"optimizer={name: sgd, momentum: 0.5, max_grad_norm: 0}",
                                       "train.max_steps=1", "ppo.critic_warmup_steps=0"});
    ppo_metrics(arguments, folder / "out");
    for (const char* role : {"policy", "critic"})
      check_gradients(str(folder / "out", "/checkpoints/step-1/", role, ".optimizer.safetensors"),
                      one["gradients"][role]);
  }
}
