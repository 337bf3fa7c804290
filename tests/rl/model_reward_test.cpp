// A reward model as a reward.
#include "temper/rl/model_reward.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <doctest/doctest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/models/load.h"

using namespace temper;

namespace {

std::string golden(const std::string& name) {
  const char* root = std::getenv("TEMPER_SOURCE_DIR");
  return (root ? std::string(root) + "/" : std::string()) + "tests/golden/models/" + name;
}

using Ids = std::vector<int32_t>;

rewards::Sample sample(Ids prompt, Ids completion) {
  rewards::Sample s;
  s.where = "rows.jsonl:1";
  s.prompt_tokens = std::move(prompt);
  s.completion_tokens = std::move(completion);
  return s;
}

float alone(const rewards::Sample& s) {
  const at::NoGradGuard no_grad;
  static const auto model = models::load_scalar_model(golden("score"));
  Ids all = s.prompt_tokens;
  all.insert(all.end(), s.completion_tokens.begin(), s.completion_tokens.end());
  const auto forest = std::make_shared<Forest>();
  forest->add_root(all);
  return model->values(model->forward({.forest = forest}), {forest->num_tokens() - 1})
      .item<float>();
}

}  // namespace

TEST_CASE("completions are judged together as each alone, to the bit") {
  const std::vector<rewards::Sample> samples{
      sample({5, 6, 7}, {8, 9, 2}), sample({5, 6, 7}, {10}), sample({5, 6, 7}, {}),
      sample({11}, {12, 13}),       sample({}, {20, 21}),    sample({5, 6, 7}, {8, 9, 2})};
  rewards::RewardSection section;
  section.model = golden("score");
  CHECK(section.label() == "model");
  const auto reward = rewards::make_reward(section);
  CHECK_FALSE(reward->needs_text());
  const std::vector<rewards::Verdict> verdicts = reward->judge(samples);
  REQUIRE(verdicts.size() == samples.size());
  for (size_t i = 0; i < samples.size(); ++i) {
    CHECK(verdicts[i].kind == rewards::Verdict::Kind::kValue);
    CHECK(static_cast<float>(verdicts[i].value) == alone(samples[i]));
  }
}

TEST_CASE("a model without a head or with other tokens is refused") {
  rewards::RewardSection section;
  section.model = golden("qwen3");
  CHECK_THROWS_WITH_AS(rewards::make_reward(section), doctest::Contains("no scalar head"),
                       ConfigError);
  section.model = golden("score");
  section.command = {"true"};
  section.name = "rm";
  CHECK(rewards::find_problem({&section, 1}).find("has a model and a command") !=
        std::string::npos);
  section.command.clear();
  rl::check_reward_models({&section, 1}, nullptr, 61);
  CHECK_THROWS_WITH_AS(rl::check_reward_models({&section, 1}, nullptr, 62),
                       doctest::Contains("rewards: rm: the reward model"), ConfigError);
  rewards::RewardSection missing;
  missing.name = "model";
  CHECK_THROWS_WITH_AS(rewards::make_reward(missing), doctest::Contains("expected `model`"),
                       ConfigError);
}
