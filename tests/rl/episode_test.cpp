// Episodes as lines of a rollouts file, and as the trainer's units.
#include "temper/rl/episode.h"

#include <doctest/doctest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "temper/base/error.h"
#include "temper/rl/batch.h"
#include "temper/rl/rollout/rollout_lines.h"

using namespace temper;

namespace {

constexpr int64_t kVocabulary = 100;

// Two completions, one of them with an observation between two turns.
rl::EpisodeGroup two_turns() {
  rl::EpisodeGroup group;
  group.id = 7;
  group.segments = {{.tokens = {1, 2, 3}},
                    {.parent = 0,
                     .tokens = {10, 11},
                     .sampled = true,
                     .kept = {{9, 10}, {11, 12}},
                     .logprobs = {-0.1F, -2.5F},
                     .old_logp = {-0.2F, -2.25F},
                     .ref_logp = {-0.3F, -1e-7F},
                     .policy_version = 4},
                    {.parent = 1, .tokens = {20, 21, 22}},
                    {.parent = 2,
                     .tokens = {12},
                     .sampled = true,
                     .kept = {{12}},
                     .logprobs = {-0.7F},
                     .old_logp = {-0.75F},
                     .ref_logp = {-3.0F},
                     .policy_version = 4},
                    {.parent = 0,
                     .tokens = {13, 2},
                     .sampled = true,
                     .logprobs = {-1.5F, 0.0F},
                     .old_logp = {-1.0F, -0.5F},
                     .ref_logp = {-1.25F, -8.0F},
                     .policy_version = 4}};
  group.episodes = {{.sample = 0,
                     .path = {1, 2, 3},
                     .reward = 0.1,
                     .penalty = -0.25,
                     .rewards = {{"exact", 0.0}, {"length", 0.1}},
                     .text = "two \"turns\"\n\xe2\x82\xac",
                     .stopped = false},
                    {.sample = 3, .path = {4}, .reward = 1.0 / 3, .rewards = {{"exact", 1.0}}}};
  return group;
}

std::vector<rl::EpisodeGroup> groups_in(const std::vector<std::string>& lines) {
  std::vector<rl::EpisodeGroup> groups;
  for (const std::string& line : lines)
    rl::add_line(groups, parse_json(line, "rollouts:1"), kVocabulary, "rollouts:1");
  return groups;
}

void check_same(const rl::EpisodeGroup& a, const rl::EpisodeGroup& b) {
  CHECK(a.id == b.id);
  REQUIRE(a.segments.size() == b.segments.size());
  for (size_t s = 0; s < a.segments.size(); ++s) {
    CAPTURE(s);
    const rl::Segment &x = a.segments[s], &y = b.segments[s];
    CHECK(x.parent == y.parent);
    CHECK(x.tokens == y.tokens);
    CHECK(x.sampled == y.sampled);
    CHECK(x.kept == y.kept);
    CHECK(x.logprobs == y.logprobs);
    CHECK(x.old_logp == y.old_logp);
    CHECK(x.ref_logp == y.ref_logp);
    if (x.sampled) CHECK(x.policy_version == y.policy_version);
  }
  REQUIRE(a.episodes.size() == b.episodes.size());
  for (size_t e = 0; e < a.episodes.size(); ++e) {
    CAPTURE(e);
    const rl::Episode &x = a.episodes[e], &y = b.episodes[e];
    CHECK(x.sample == y.sample);
    CHECK(x.path == y.path);
    CHECK(x.reward == y.reward);
    CHECK(x.penalty == y.penalty);
    CHECK((x.rewards == y.rewards));
    CHECK(x.text == y.text);
    CHECK(x.stopped == y.stopped);
  }
}

std::string refusal(const Json& change) {
  const rl::EpisodeGroup group = two_turns();
  Json row = parse_json(rl::to_line(group, group.episodes[0]), "line");
  row.merge_patch(change);
  try {
    groups_in({row.dump()});
  } catch (const DataError& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("a completion of several versions of the policy reads back to its parts") {
  rl::EpisodeGroup group{.id = 5};
  group.segments = {
      {.tokens = {1, 2}},
      {.parent = 0,
       .tokens = {3, 4},
       .sampled = true,
       .logprobs = {-1.0F, -2.0F},
       .policy_version = 6},
      {.parent = 1, .tokens = {5}, .sampled = true, .logprobs = {-3.0F}, .policy_version = 7}};
  group.episodes = {{.path = {1, 2}, .reward = 1}};
  const Json row = parse_json(rl::to_line(group, group.episodes[0]), "line");
  CHECK(row["policy_version"] == Json({6, 7}));
  CHECK(row["version_tokens"] == Json({2, 1}));
  check_same(groups_in({row.dump()}).at(0), group);
  for (const Json& wrong :
       {Json({2}), Json({2, 2}), Json({3, 1}), Json({-1, 4}), Json("2"), Json()}) {
    Json bad = row;
    bad["version_tokens"] = wrong;
    CHECK_THROWS_AS(groups_in({bad.dump()}), DataError);
  }
}

TEST_CASE("a group's lines read back to the same group, turns, masks and penalties included") {
  const rl::EpisodeGroup group = two_turns();
  std::vector<std::string> lines;
  for (const rl::Episode& e : group.episodes) lines.push_back(rl::to_line(group, e, true));
  const Json first = parse_json(lines[0], "line"), second = parse_json(lines[1], "line");
  CHECK(first["completion_tokens"] == Json({10, 11, 20, 21, 22, 12}));
  CHECK(first["completion_mask"] == Json({1, 1, 0, 0, 0, 1}));
  CHECK(first["reward"] == 0.1);
  CHECK(first["penalty"] == -0.25);
  CHECK(first["policy_version"] == 4);
  CHECK_FALSE(second.contains("completion_mask"));
  CHECK_FALSE(second.contains("penalty"));
  const std::vector<rl::EpisodeGroup> groups = groups_in(lines);
  REQUIRE(groups.size() == 1);
  check_same(groups[0], group);

  // Without what a checkpoint needs besides, only that is missing.
  std::vector<std::string> plain;
  for (const rl::Episode& e : group.episodes) plain.push_back(rl::to_line(group, e));
  rl::EpisodeGroup expected = group;
  for (rl::Segment& segment : expected.segments) segment.old_logp = segment.ref_logp = {};
  check_same(groups_in(plain).at(0), expected);
}

TEST_CASE("another program's lines need four fields; groups follow one another") {
  const auto line = [](int64_t group, int64_t token) {
    return str("{\"group\": ", group, ", \"prompt_tokens\": [1], \"completion_tokens\": [", token,
               "], \"reward\": 0.5}");
  };
  const std::vector<rl::EpisodeGroup> groups = groups_in({line(1, 5), line(1, 6), line(2, 7)});
  REQUIRE(groups.size() == 2);
  CHECK(groups[0].episodes.size() == 2);
  CHECK(groups[0].segments.size() == 3);  // the prompt is there once
  CHECK(groups[0].segments[2].parent == 0);
  CHECK(groups[0].segments[1].logprobs.empty());
  CHECK(groups[1].completion(groups[1].episodes[0]) == std::vector<int32_t>{7});
}

TEST_CASE("lines that are wrong are refused by their field") {
  CHECK(refusal(Json::object()) == "no error");
  CHECK(refusal({{"reward", nullptr}}).find("no `reward`") != std::string::npos);
  CHECK(refusal({{"reward", "1"}}).find("`reward` must be a number") != std::string::npos);
  CHECK(refusal({{"penalty", "x"}}).find("`penalty` must be a number") != std::string::npos);
  CHECK(refusal({{"group", 0.5}}).find("`group`") != std::string::npos);
  CHECK(refusal({{"completion_mask", {1, 0}}}).find("`completion_mask`") != std::string::npos);
  CHECK(refusal({{"completion_mask", {1, 1, 0, 0, 0, 2}}}).find("0 and 1") != std::string::npos);
  CHECK(refusal({{"completion_mask", {0, 0, 0, 0, 0, 0}}}).find("no token as sampled") !=
        std::string::npos);
  CHECK(refusal({{"logprobs", {-1.0}}}).find("`logprobs` has 1 numbers") != std::string::npos);
  CHECK(refusal({{"kept_tokens", {{10}}}}).find("`kept_tokens` must have a list") !=
        std::string::npos);
  const Json none = Json::array();
  CHECK(refusal({{"kept_tokens", {{11, 12}, none, none, none, none, none}}})
            .find("with token 10 of place 0") != std::string::npos);
  CHECK(refusal({{"kept_tokens", {{10, 10}, none, none, none, none, none}}}).find("ascending") !=
        std::string::npos);
  CHECK(refusal({{"kept_tokens", {{9, 10}, none, none, none, none, {12}}}}) == "no error");
  CHECK(refusal({{"completion_tokens", Json::array()}}).find("is empty") != std::string::npos);
  CHECK(refusal({{"prompt_tokens", {100}}}).find("`prompt_tokens`") != std::string::npos);
  CHECK(refusal({{"rewards", {{"exact", "x"}}}}).find("`rewards`") != std::string::npos);
}

namespace {

// Groups of so many completions, of lengths that differ, with one prompt each.
rl::TrainingBatch batch_of(int64_t groups, int64_t completions) {
  std::vector<rl::EpisodeGroup> out;
  for (int64_t g = 0; g < groups; ++g) {
    rl::EpisodeGroup& group = out.emplace_back();
    group.id = g;
    group.segments.push_back({.tokens = std::vector<int32_t>(static_cast<size_t>(3 + g), 1)});
    for (int64_t c = 0; c < completions; ++c) {
      group.segments.push_back(
          {.parent = 0,
           .tokens = std::vector<int32_t>(static_cast<size_t>(1 + (5 * c + g) % 7), 2),
           .sampled = true});
      group.episodes.push_back({.sample = c, .path = {static_cast<int32_t>(c) + 1}});
    }
  }
  return rl::TrainingBatch(std::move(out));
}

// How often each segment's labels are in the units.
std::map<int64_t, int> labelled(const std::vector<train::PackUnit>& units) {
  std::map<int64_t, int> count;
  for (const train::PackUnit& unit : units)
    for (const train::PackUnit::Segment& segment : unit.segments)
      if (!segment.labels.empty()) ++count[segment.tag];
  return count;
}

}  // namespace

TEST_CASE("groups are units, split only where they have more tokens than a pass") {
  const rl::TrainingBatch batch = batch_of(3, 6);
  const std::vector<train::PackUnit> whole = batch.units(0, batch.num_episodes(), 0);
  REQUIRE(whole.size() == 3);
  for (const train::PackUnit& unit : whole) CHECK(unit.segments.size() == 7);
  CHECK(batch.units(0, batch.num_episodes(), 1000).size() == 3);
  const std::vector<train::PackUnit> split = batch.units(0, batch.num_episodes(), 15);
  CHECK(split.size() > 3);
  for (const train::PackUnit& unit : split) {
    CHECK(unit.num_tokens() <= 15);
    CHECK(unit.segments[0].parent == -1);
    CHECK(unit.segments[0].labels.empty());  // a prompt trains nothing
  }
  CHECK((labelled(split) == labelled(whole)));
  CHECK(labelled(whole).size() == 18);
  // A minibatch has its own episodes and their prompts.
  const std::vector<train::PackUnit> part = batch.units(4, 8, 0);
  REQUIRE(part.size() == 2);
  CHECK(part[0].segments.size() == 3);
  CHECK(part[1].segments.size() == 3);
}

TEST_CASE("a segment that episodes share counts once, however the group is split") {
  rl::EpisodeGroup group;
  group.segments = {{.tokens = {1, 1}},
                    {.parent = 0, .tokens = {5, 6, 7}, .sampled = true},
                    {.parent = 1, .tokens = {8, 8, 8}, .sampled = true},
                    {.parent = 1, .tokens = {9, 9}, .sampled = true}};
  group.episodes = {{.path = {1, 2}}, {.sample = 1, .path = {1, 3}}};
  std::vector<rl::EpisodeGroup> groups{group};
  const rl::TrainingBatch batch(std::move(groups));
  for (const int64_t max_tokens : {0, 8}) {
    CAPTURE(max_tokens);
    const std::vector<train::PackUnit> units = batch.units(0, 2, max_tokens);
    CHECK(units.size() == (max_tokens == 0 ? 1 : 2));
    CHECK((labelled(units) == std::map<int64_t, int>{{1, 1}, {2, 1}, {3, 1}}));
  }
}

TEST_CASE("a batch's lines are the batch") {
  rl::EpisodeGroup group = two_turns();
  std::vector<rl::EpisodeGroup> groups{group};
  const rl::TrainingBatch batch(std::move(groups));
  const rl::TrainingBatch again =
      rl::TrainingBatch::from_lines(batch.lines(), kVocabulary, "state");
  REQUIRE(again.groups().size() == 1);
  check_same(again.groups()[0], group);
  CHECK_THROWS_AS(rl::TrainingBatch::from_lines("{}\n", kVocabulary, "state"), DataError);
  CHECK_THROWS_AS(rl::TrainingBatch::from_lines(batch.lines(), 12, "state"), DataError);
}

TEST_CASE("log-probabilities are printed with the fewest digits that read back to the float") {
  rl::EpisodeGroup group{.id = 5};
  group.segments = {{.tokens = {1, 2}},
                    {.parent = 0,
                     .tokens = {3, 4},
                     .sampled = true,
                     .logprobs = {-0.1F, -1.2345678F},
                     .old_logp = {-0.3F, -2.0F},
                     .advantage = {0.7F, 0.7F}}};
  group.episodes = {{.path = {1}, .reward = 0.1, .closing_tokens = {6}}};
  const std::string line = rl::to_line(group, group.episodes[0], true);
  CHECK(line.find("\"logprobs\":[-0.1,-1.2345678]") != std::string::npos);
  CHECK(line.find("\"old_logp\":[-0.3,-2.0]") != std::string::npos);
  CHECK(line.find("\"advantage\":0.7,") != std::string::npos);
  CHECK(line.find("\"reward\":0.1,") != std::string::npos);
  std::vector<rl::EpisodeGroup> groups;
  rl::add_lines(groups, line, 10, "line");
  CHECK(groups.at(0).segments.at(1).logprobs == group.segments[1].logprobs);
  CHECK(groups.at(0).episodes.at(0).closing_tokens == std::vector<int32_t>{6});
  CHECK_THROWS_AS(rl::add_lines(groups, line, 6, "line"), DataError);  // the template's tokens too
}
