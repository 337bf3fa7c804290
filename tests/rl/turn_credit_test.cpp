// Credit by turns: rewards from a turn on, compared with the same turn of other episodes.
#include <doctest/doctest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/json.h"
#include "temper/rl/algorithms/credit.h"
#include "temper/rl/algorithms/group_keys.h"
#include "temper/rl/rollout/rollout_lines.h"

using namespace temper;
using namespace temper::rl;

namespace {

// Episodes of so many turns of two tokens, with an observation of one token between them.
std::string line(int64_t sample, const std::vector<double>& turn_rewards, double reward) {
  Json row{{"group", 3}, {"sample", sample}, {"prompt_tokens", {5, 6}}, {"reward", reward}};
  for (size_t t = 0; t < turn_rewards.size(); ++t) {
    if (t > 0) row["completion_tokens"].push_back(9);
    if (t > 0) row["completion_mask"].push_back(0);
    for (int i = 0; i < 2; ++i) row["completion_tokens"].push_back(7);
    for (int i = 0; i < 2; ++i) row["completion_mask"].push_back(1);
  }
  row["turn_rewards"] = turn_rewards;
  return row.dump() + "\n";
}

std::vector<EpisodeGroup> groups_of(const std::string& lines) {
  std::vector<EpisodeGroup> groups;
  add_lines(groups, lines, 20, "here");
  return groups;
}

}  // namespace

TEST_CASE("a turn's reward is the discounted sum from it on, the rest with the last one") {
  Episode episode;
  episode.reward = 4.5;  // 1.5 by rewards of the whole
  episode.turn_rewards = {1, 0, 2};
  episode.penalty = -0.5;
  CHECK(rewards_to_go(episode, 3, 1, false) == std::vector<double>{4.5, 3.5, 3.5});
  CHECK(rewards_to_go(episode, 3, 0.5, true) == std::vector<double>{1.75, 1.5, 3});
  CHECK(rewards_to_go(episode, 2, 1, false) == std::vector<double>{4.5, 3.5});
  episode.turn_rewards = {};
  CHECK(rewards_to_go(episode, 2, 0.5, false) == std::vector<double>{2.25, 4.5});
}

TEST_CASE("turns are compared by their number, and a turn that one episode alone has gets 0") {
  std::vector<EpisodeGroup> groups =
      groups_of(line(0, {1, 0, 2}, 3) + line(1, {0, 1}, 1) + line(2, {2}, 2));
  const std::unique_ptr<Algorithm> grpo = algorithms().find("grpo")();
  group_keys(*grpo).turn_credit = TurnCredit::kTurn;
  grpo->prepare({100, true});
  CHECK(grpo->keep(groups[0]));
  grpo->assign(groups[0]);
  const Json first = parse_json(to_line(groups[0], groups[0].episodes[0]), "line");
  const Json second = parse_json(to_line(groups[0], groups[0].episodes[1]), "line");
  // First turns: 3, 1, 2, of mean 2 and deviation 1; second ones: 2, 1.
  const double half = 0.5 / (std::sqrt(0.5) + 1e-6), one = 1 / (1 + 1e-6);
  const std::vector<double> expected{one, one, 0, half, half, 0, 0, 0};
  REQUIRE(first["advantage"].size() == expected.size());
  for (size_t t = 0; t < expected.size(); ++t)
    CHECK(first["advantage"][t].get<double>() == doctest::Approx(expected[t]).epsilon(1e-6));
  CHECK(second["advantage"][0].get<double>() == doctest::Approx(-one).epsilon(1e-6));
  CHECK(second["advantage"][3].get<double>() == doctest::Approx(-half).epsilon(1e-6));
  CHECK(first["turn_rewards"] == Json({1.0, 0.0, 2.0}));
  // A list also where its numbers are equal.
  CHECK(parse_json(to_line(groups[0], groups[0].episodes[2]), "line")["advantage"].is_array());
}

TEST_CASE("turn_rewards that do not fit the turns are refused") {
  Json row = parse_json(line(0, {1, 2}, 3), "line");
  for (const Json& wrong : {Json({1.0}), Json("x"), Json({1.0, "x"})}) {
    row["turn_rewards"] = wrong;
    CHECK_THROWS_AS(groups_of(row.dump() + "\n"), DataError);
  }
}
