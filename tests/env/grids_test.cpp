// Frozen Lake and Sokoban.
#include <doctest/doctest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <queue>
#include <set>

#include "temper/base/error.h"
#include "temper/env/environment.h"
#include "temper/env/grid_actions.h"

using namespace temper;
using namespace temper::env;

namespace {

Observation said(Environment& world, const std::string& completion) {
  return world.step({completion, {}, {}});
}
std::string grid_of(const Observation& now) {
  return now.messages.at(0)["content"].get<std::string>();
}

// The least number of moves in which a room with one box is solved, by its text; -1: none.
int moves_to_solve(const std::string& text) {
  std::vector<std::string> rows(1);
  for (const char c : text) c == '\n' ? rows.emplace_back() : rows.back() += c;
  int player = 0, box = 0, target = 0;
  const int width = static_cast<int>(rows[0].size());
  std::string cells;
  for (const std::string& row : rows) cells += row;
  for (int i = 0; i < static_cast<int>(cells.size()); ++i) {
    if (cells[i] == 'P' || cells[i] == 'S') player = i;
    if (cells[i] == 'X') box = i;
    if (cells[i] == 'O' || cells[i] == 'S') target = i;
  }
  std::map<std::pair<int, int>, int> seen{{{player, box}, 0}};
  std::queue<std::pair<int, int>> next({{player, box}});
  while (!next.empty()) {
    const auto [at, boxed] = next.front();
    const int made = seen[next.front()];
    next.pop();
    if (boxed == target) return made;
    for (const int step : {-1, 1, -width, width}) {
      const int to = at + step, pushed = to == boxed ? boxed + step : boxed;
      if (cells[to] == '#' || cells[pushed] == '#') continue;
      if (seen.emplace(std::pair(to, pushed), made + 1).second) next.push({to, pushed});
    }
  }
  return -1;
}

}  // namespace

TEST_CASE("a turn's moves are those of its answer, or the first word that is one") {
  using Moves = std::vector<size_t>;
  CHECK(moves_of("<think>Up?</think><answer>Right || down, LEFT</answer>") == Moves{2, 1, 0});
  CHECK(moves_of("I go up, not down") == Moves{3});
  CHECK(moves_of("<answer>jump</answer> up").empty());
  CHECK(moves_of("nothing").empty());
  std::string many = "<answer>";
  for (int i = 0; i < 30; ++i) many += "up ";
  CHECK(moves_of(many + "</answer>").size() == kMostMoves);
}

TEST_CASE("Frozen Lake: the goal gives 1, a hole ends the walk") {
  const Json row{{"map", {"SFH", "FHF", "FFG"}}, {"instructions", false}};
  const auto world = environments().find("frozen_lake")();
  CHECK(grid_of(world->reset(row)) == "P_O\n_O_\n__G");
  CHECK(grid_of(said(*world, "Up")) == "P_O\n_O_\n__G");
  Observation now = said(*world, "hm");
  CHECK(now.reward == -0.1);
  CHECK(grid_of(now) == std::string(kNoMove) + "P_O\n_O_\n__G");
  now = said(*world, "<answer>Down, Down, Right, Right</answer>");
  CHECK(now.done);
  CHECK(now.reward == 1);
  world->reset(row);
  now = said(*world, "<answer>Right, Down, Down</answer>");
  CHECK(now.done);
  CHECK(now.reward == 0);
  CHECK(environments()
            .find("frozen_lake")()
            ->reset({{"seed", 3}})
            .messages[0]["content"]
            .get<std::string>()
            .find("Answer as in") != std::string::npos);
}

TEST_CASE("Frozen Lake: drawn maps have a way, slippery ice leads aside") {
  std::set<std::string> maps;
  for (int seed = 0; seed < 30; ++seed)
    maps.insert(grid_of(environments().find("frozen_lake")()->reset(
        {{"seed", seed}, {"p", 0.0}, {"size", 5}, {"instructions", false}})));
  CHECK(maps.size() > 20);
  std::set<std::string> after;
  for (int seed = 0; seed < 30; ++seed) {
    const auto world = environments().find("frozen_lake")();
    world->reset({{"map", {"FFF", "FSF", "FFG"}},
                  {"seed", seed},
                  {"is_slippery", true},
                  {"instructions", false}});
    after.insert(grid_of(said(*world, "Left")));
  }
  CHECK(after == std::set<std::string>{"_P_\n___\n__G", "___\nP__\n__G", "___\n___\n_PG"});
}

TEST_CASE("Sokoban: pushes, rewards and the end") {
  const auto world = environments().find("sokoban")();
  const Json row{{"map", {"######", "#P___#", "#_X_O#", "#_X_O#", "######"}},
                 {"instructions", false}};
  CHECK(grid_of(world->reset(row)) == "######\n#P___#\n#_X_O#\n#_X_O#\n######");
  Observation now = said(*world, "<answer>Down, Right, Right</answer>");
  CHECK(now.reward == doctest::Approx(0.7));
  CHECK(grid_of(now) == "######\n#____#\n#__P\xE2\x88\x9A#\n#_X_O#\n######");
  CHECK(said(*world, "right").reward == doctest::Approx(-0.1));  // a wall behind the box
  now = said(*world, "<answer>Left, Left, Down, Right, Right</answer>");
  CHECK(now.done);
  CHECK(now.reward == doctest::Approx(11 - 0.5));
  world->reset({{"map", {"#####", "#PB_#", "#XO_#", "#___#", "#####"}}, {"instructions", false}});
  CHECK(said(*world, "Right").reward == doctest::Approx(-1.1));
}

TEST_CASE("Sokoban: drawn rooms can be solved") {
  std::set<std::string> rooms;
  for (int seed = 0; seed < 40; ++seed) {
    const std::string room = grid_of(environments().find("sokoban")()->reset(
        {{"seed", seed}, {"size", {6, 7}}, {"instructions", false}}));
    rooms.insert(room);
    CHECK(moves_to_solve(room) > 0);
  }
  CHECK(rooms.size() > 30);
}

TEST_CASE("rows that these environments cannot read say what is wrong") {
  const auto error = [](const char* name, const Json& row) -> std::string {
    try {
      environments().find(name)()->reset(row);
    } catch (const DataError& e) {
      return e.what();
    }
    return "no error";
  };
  CHECK(error("frozen_lake", {{"size", 1}}).find("from 2 to 64; found 1") != std::string::npos);
  CHECK(error("frozen_lake", {{"map", {"SF", "F"}}}).find("texts of one length") !=
        std::string::npos);
  CHECK(error("frozen_lake", {{"map", {"FF", "FG"}}}).find("0 starts") != std::string::npos);
  CHECK(error("sokoban", {{"map", {"#PX#"}}}).find("0 targets") != std::string::npos);
  CHECK(error("sokoban", {{"size", {4, 6}}}).find("each from 5 to 20") != std::string::npos);
  CHECK(error("sokoban", {{"size", {5, 5}}, {"boxes", 8}}).find("found no room") !=
        std::string::npos);
}
