// Rewards in an evaluation: what is sampled is what the engine samples, on any number of ranks.
#include "temper/train/run/reward_evaluation.h"

#include "temper/base/file.h"
#include "temper/generate/engine.h"
#include "temper/train/sft/sft.h"
#include "tests/train/tiny.h"

using namespace temper;
using tiny::Folder;

namespace {

constexpr int kPrompts = 5;

train::SftConfig config_of(const Folder& folder, const std::string& rows,
                           std::vector<std::string> more = {}) {
  write_file_atomic(folder / "rows.jsonl", rows);
  more.insert(more.begin(),
              {"output_dir=" + (folder / "run"), "model.path=none",
               "data.train=" + (folder / "rows.jsonl"), "data.eval=" + (folder / "rows.jsonl"),
               "train.eval_rewards=[{name: length, weight: 2}]", "rollout.max_new_tokens=12"});
  train::SftConfig config;
  read_run_config(config, more, "sft");
  return config;
}

std::string prompts() {
  std::string lines;
  for (const std::vector<int32_t>& row : tiny::rows(kPrompts))
    lines += Json{{"prompt_ids", row}, {"completion_ids", row}}.dump() + "\n";
  return lines;
}

// The row of metrics of each rank's evaluation, the first one's.
std::string evaluated(const train::SftConfig& config, const dist::Mesh& mesh) {
  train::Policy policy = tiny::policy();
  tiny::Silent messages;
  train::RewardEvaluation evaluation(config, policy, mesh, messages);
  MetricsRow row(1);
  CHECK(evaluation.evaluate(row, [] { return false; }) == train::Hook::Evaluated::kYes);
  return row.json();
}

}  // namespace

TEST_CASE("an evaluation's rewards are of what the engine samples, whatever the ranks") {
  const Folder folder;
  const train::SftConfig config = config_of(folder, prompts(), {"train.eval_completions=3"});
  generate::GenerationOptions options = config.rollout.options(config.seed);
  const train::Policy policy = tiny::policy();
  generate::Engine engine(*policy.model, {});
  int64_t key = int64_t{1} << 40;
  for (const std::vector<int32_t>& row : tiny::rows(kPrompts))
    engine.submit({key++, row, 3, options});
  double tokens = 0, truncated = 0;
  engine.run([&](const generate::Completion& completion) {
    tokens += static_cast<double>(completion.tokens.size());
    truncated += completion.stopped ? 0 : 1;
  });
  const Json row = parse_json(evaluated(config, tiny::alone()), "row");
  CHECK(row["eval/completion_length_mean"].get<double>() == tokens / (3 * kPrompts));
  CHECK(row["eval/truncated_fraction"].get<double>() == truncated / (3 * kPrompts));
  CHECK(row["eval/rewards/length"].get<double>() ==
        doctest::Approx(-tokens / (3 * kPrompts) / 12).epsilon(1e-12));
  CHECK(row["eval/reward_mean"].get<double>() ==
        doctest::Approx(2 * row["eval/rewards/length"].get<double>()).epsilon(1e-12));

  tiny::ThreadRanks(2).run([&](dist::Group& group) {
    const Json shared = parse_json(evaluated(config, group), "row");
    for (const auto& [name, value] : row.items())
      CHECK(shared[name].get<double>() == doctest::Approx(value.get<double>()).epsilon(1e-12));
  });
}

TEST_CASE("ranks that evaluate the same rows have caches of one size") {
  // Of a rank whose twin has little memory.
  struct Twin : dist::Group {
    int rank() const override { return 0; }
    int size() const override { return 1; }
    void barrier() override {}
    void all_reduce_sum(at::Tensor&) override {}
    bool has_twins() const override { return true; }
    std::string agreed(const std::string&) override { return "64"; }
  };
  const Folder folder;
  const train::SftConfig config = config_of(folder, prompts());
  const train::Policy policy = tiny::policy();
  tiny::Silent messages;
  Twin twin;
  CHECK_THROWS_AS(train::RewardEvaluation(config, policy, twin, messages), ConfigError);
}

TEST_CASE("an evaluation by rewards that is stopped gives no metrics") {
  const Folder folder;
  const train::SftConfig config = config_of(folder, prompts());
  const train::Policy policy = tiny::policy();
  tiny::Silent messages;
  train::RewardEvaluation evaluation(config, policy, tiny::alone(), messages);
  MetricsRow row(1);
  int asked = 0;
  const auto stop = [&] { return ++asked > 3; };
  CHECK(evaluation.evaluate(row, stop) == train::Hook::Evaluated::kCutShort);
  CHECK(!parse_json(row.json(), "row").contains("eval/reward_mean"));
}

TEST_CASE("the prompt of a row of ids with labels ends before the first label") {
  const Folder folder;
  const train::SftConfig config =
      config_of(folder, R"({"input_ids": [5, 6, 7, 8], "labels": [5, -100, 7, 8]})"
                        "\n");
  const auto prompts = evaluation_prompts(config, tiny::policy(), rewards::RewardSet({}, false));
  REQUIRE(prompts.size() == 1);
  CHECK(prompts[0].at(0).tokens == std::vector<int32_t>{5, 6});
}

TEST_CASE("rewards that an evaluation cannot have are refused") {
  const Folder folder;
  const auto error = [&](std::vector<std::string> more) -> std::string {
    try {
      config_of(folder, prompts(), std::move(more));
    } catch (const ConfigError& e) {
      return e.what();
    }
    return "no error";
  };
  CHECK(error({"data.eval=[]"}).find("train.eval_rewards: there is neither data.eval") !=
        std::string::npos);
  CHECK(error({"train.eval_rewards=[{name: length}, {name: length}]"})
            .find("two rewards are called `length`") != std::string::npos);
  CHECK(error({"train.early_stopping.metric=eval/rewards/lenght"})
            .find("did you mean eval/rewards/length?") != std::string::npos);
  CHECK(error({"train.early_stopping.metric=eval/reward_mean"}) == "no error");
}
