#include "temper/data/tools/pairs.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "temper/base/error.h"

using namespace temper;
using namespace temper::data;

TEST_CASE("a wrong answer differs in one digit of its last number, wherever that stands") {
  const std::string answer =
      "She sold 48/2 = <<48/2=24>>24 clips, 24 more. Altogether 1,048.5\n#### 24";
  std::set<std::string> seen;
  for (uint64_t i = 0; i < 50; ++i) {
    const auto pair =
        pair_with_wrong_number({{"prompt", "q"}, {"completion", answer}, {"id", 3}}, 7, i, "r:1");
    REQUIRE(pair);
    CHECK(pair->at("prompt") == "q");
    CHECK(pair->at("chosen") == answer);
    const std::string rejected = pair->at("rejected");
    const std::string wrong = rejected.substr(rejected.size() - 2);
    CHECK(wrong != "24");
    CHECK(wrong[0] != '0');
    CHECK((wrong[0] == '2') + (wrong[1] == '4') == 1);
    CHECK(rejected == "She sold 48/2 = <<48/2=" + wrong + ">>" + wrong + " clips, " + wrong +
                          " more. Altogether 1,048.5\n#### " + wrong);
    seen.insert(wrong);
  }
  CHECK(seen.size() > 8);
  const Json row = {{"prompt", "q"}, {"completion", answer}};
  CHECK(pair_with_wrong_number(row, 7, 3, "r:1") == pair_with_wrong_number(row, 7, 3, "r:9"));
}

TEST_CASE("numbers with separators are one, and a row without a number makes no pair") {
  const auto rejected = [](const std::string& completion) {
    return pair_with_wrong_number({{"prompt", "q"}, {"completion", completion}}, 0, 0, "r:1");
  };
  CHECK_FALSE(rejected("none at all"));
  CHECK(rejected("5")->at("rejected") != "5");
  const std::string wrong = rejected("1, 1,234")->at("rejected");
  CHECK(wrong.starts_with("1, "));
  CHECK(wrong.size() == 8);
  CHECK(rejected("no. 1.")->at("rejected").get<std::string>().ends_with("."));
  CHECK_THROWS_WITH_AS(pair_with_wrong_number({{"completion", "5"}}, 0, 0, "r:4"),
                       "r:4: expected text in `prompt`", DataError);
}

TEST_CASE("the best completion of a group against the worst") {
  const auto row = [](std::vector<int> tokens, double reward) {
    return Json{{"prompt_tokens", {1, 2}}, {"completion_tokens", tokens}, {"reward", reward}};
  };
  CHECK(best_against_worst({row({3}, 0.5), row({4}, 1), row({5}, -1), row({6}, 1)}, "r:1") ==
        std::vector<Json>{{{"prompt_ids", {1, 2}},
                           {"chosen_ids", {4}},
                           {"rejected_ids", {5}},
                           {"reward_difference", 2.0}}});
  Json ended = row({6}, 2);
  ended["closing_tokens"] = {9};  // what the chat template writes behind its turns
  const Json pair = best_against_worst({ended, row({5}, 1)}, "r:1").at(0);
  CHECK(pair["chosen_ids"] == Json({6, 9}));
  CHECK(pair["rejected_ids"] == Json({5}));
  CHECK(best_against_worst({row({3}, 1), row({4}, 1)}, "r:1").empty());
  CHECK(best_against_worst({row({3}, 1), row({3}, 0)}, "r:1").empty());
  CHECK_THROWS_WITH_AS(best_against_worst({{{"reward", 1}}}, "r:5"),
                       "r:5: expected a list in `prompt_tokens`", DataError);
  CHECK_THROWS_WITH_AS(best_against_worst({{{"prompt_tokens", {1}}, {"reward", "x"}}}, "r:5"),
                       "r:5: expected a number in `reward`", DataError);
}

TEST_CASE("a pair is of completions after the same prompt") {
  const auto row = [](std::vector<int> prompt, std::vector<int> tokens, double reward) {
    return Json{{"prompt_tokens", prompt}, {"completion_tokens", tokens}, {"reward", reward}};
  };
  // Two agents' requests: the same first one, then others.
  const std::vector<Json> pairs =
      best_against_worst({row({1}, {2}, 1), row({1, 2, 9}, {3}, 1), row({1}, {4}, 0),
                          row({1, 4, 9}, {5}, 0), row({1, 2, 9}, {6}, 0.5)},
                         "r:1");
  REQUIRE(pairs.size() == 2);
  CHECK(pairs[0]["prompt_ids"] == Json({1}));
  CHECK(pairs[0]["rejected_ids"] == Json({4}));
  CHECK(pairs[1]["prompt_ids"] == Json({1, 2, 9}));
  CHECK(pairs[1]["chosen_ids"] == Json({3}));
  CHECK(pairs[1]["rejected_ids"] == Json({6}));
  CHECK(best_against_worst({row({1}, {2}, 1), row({3}, {4}, 0)}, "r:1").empty());
}
