// Frozen Lake, as RAGEN and gymnasium have it: a walk over ice to a goal, past holes. 1 for coming
// to the goal; goal and hole end the episode. On slippery ice a move goes to either side as often
// as ahead.
//
// Fields of the row: `map` (rows of S start, F ice, H hole, G goal), or `size` (4), `p` (0.8: the
// share of ice) and `seed` (0), of which a map with a way to the goal is drawn; `is_slippery`
// (false), `max_steps` (20), `format_penalty` (-0.1: the reward of a turn without a move),
// `instructions` (true).
#include <algorithm>
#include <queue>

#include "temper/base/error.h"
#include "temper/base/random.h"
#include "temper/env/grid_actions.h"

namespace temper::env {
namespace {

constexpr const char* kLakeInstructions =
    "You are solving the Frozen Lake puzzle: walk over the ice to the goal, and into no hole.\n"
    "P is you, _ ice, O a hole, G the goal, X you in a hole, \xE2\x88\x9A you at the goal.\n"
    "The moves are Left, Down, Right and Up. Answer as in <answer>Right</answer>.\n";

class FrozenLake : public Environment {
 public:
  Observation reset(const Json& row) override {
    const RowFields fields{"frozen_lake", row};
    seed_ = static_cast<uint64_t>(fields.whole("seed", 0, 0, INT64_MAX));
    is_slippery_ = fields.truth("is_slippery", false);
    moved_ = 0;
    steps_left_ = fields.whole("max_steps", 20, 1, 10000);
    format_penalty_ = fields.number("format_penalty", -0.1, -1e6, 1e6);
    map_ = fields.grid("map", "SFHG");
    if (map_.empty())
      draw(fields.whole("size", 4, 2, 64), fields.number("p", 0.8, 0, 1));
    else
      check_map();
    Observation first;
    show_grid(first, fields.truth("instructions", true) ? kLakeInstructions : "", text());
    return first;
  }

  Observation step(const Turn& turn) override {
    Observation next;
    const std::vector<size_t> moves = moves_of(turn.completion);
    if (moves.empty()) next.reward = format_penalty_;
    for (const size_t move : moves) {
      go(move);
      const char here = at(row_, column_);
      next.reward += here == 'G' ? 1 : 0;
      next.done = here == 'G' || here == 'H' || --steps_left_ == 0;
      if (next.done) break;
    }
    if (moves.empty() && --steps_left_ == 0) next.done = true;
    if (!next.done) show_grid(next, moves.empty() ? kNoMove : "", text());
    return next;
  }

 private:
  int64_t height() const { return static_cast<int64_t>(map_.size()); }
  int64_t width() const { return static_cast<int64_t>(map_[0].size()); }
  char& at(int64_t row, int64_t column) {
    return map_[static_cast<size_t>(row)][static_cast<size_t>(column)];
  }

  void check_map() {
    int64_t starts = 0, goals = 0;
    for (int64_t r = 0; r < height(); ++r)
      for (int64_t c = 0; c < width(); ++c) {
        goals += at(r, c) == 'G';
        if (at(r, c) != 'S') continue;
        ++starts;
        row_ = r;
        column_ = c;
      }
    check<DataError>(starts == 1 && goals >= 1, "the environment frozen_lake: `map` has ", starts,
                     " starts (S) and ", goals, " goals (G), expected one start and a goal");
  }

  // Draws maps until one has a way. Of p 0 none has one: after some tries the ice gets more.
  void draw(int64_t size, double p) {
    for (uint64_t attempt = 0;; ++attempt) {
      const RandomStream random(seed_, RandomPurpose::kDemo, 2, attempt);
      const double ice = p + (1 - p) * std::min<double>(1, static_cast<double>(attempt / 64) / 16);
      const uint64_t places = static_cast<uint64_t>(size * size);
      const uint64_t start = random.below(0, places);
      const uint64_t goal = (start + 1 + random.below(1, places - 1)) % places;
      map_.assign(static_cast<size_t>(size), std::string(static_cast<size_t>(size), 'F'));
      for (uint64_t i = 0; i < places; ++i) {
        char& cell = map_[i / static_cast<uint64_t>(size)][i % static_cast<uint64_t>(size)];
        cell = i == start ? 'S' : i == goal ? 'G' : random.uniform(2 + i) < ice ? 'F' : 'H';
      }
      row_ = static_cast<int64_t>(start) / size;
      column_ = static_cast<int64_t>(start) % size;
      if (has_way()) return;
    }
  }

  bool has_way() {
    std::vector<std::string> seen = map_;
    std::queue<std::pair<int64_t, int64_t>> next({{row_, column_}});
    while (!next.empty()) {
      const auto [r, c] = next.front();
      next.pop();
      if (at(r, c) == 'G') return true;
      for (const Move& move : kMoves) {
        const int64_t to_r = r + move.down, to_c = c + move.right;
        if (to_r < 0 || to_c < 0 || to_r >= height() || to_c >= width()) continue;
        char& mark = seen[static_cast<size_t>(to_r)][static_cast<size_t>(to_c)];
        if (mark == 'H') continue;
        mark = 'H';  // seen
        next.push({to_r, to_c});
      }
    }
    return false;
  }

  void go(size_t move) {
    if (is_slippery_) {
      const RandomStream random(seed_, RandomPurpose::kDemo, 3);
      move = (move + 3 + random.below(moved_++, 3)) % kMoves.size();
    }
    row_ = std::clamp<int64_t>(row_ + kMoves[move].down, 0, height() - 1);
    column_ = std::clamp<int64_t>(column_ + kMoves[move].right, 0, width() - 1);
  }

  std::string text() {
    std::string out;
    for (int64_t r = 0; r < height(); ++r) {
      if (r > 0) out += '\n';
      for (int64_t c = 0; c < width(); ++c) {
        const char cell = at(r, c);
        if (r == row_ && c == column_)
          out += cell == 'H' ? "X" : cell == 'G' ? "\xE2\x88\x9A" : "P";
        else
          out += cell == 'H' ? 'O' : cell == 'G' ? 'G' : '_';
      }
    }
    return out;
  }

  std::vector<std::string> map_;
  uint64_t seed_ = 0, moved_ = 0;
  int64_t row_ = 0, column_ = 0, steps_left_ = 0;
  bool is_slippery_ = false;
  double format_penalty_ = 0;
};

const Registered<MakeEnvironment> kFrozenLake(
    &environments, {"frozen_lake", &make_environment<FrozenLake>,
                    "a walk over ice to a goal, past holes, seen as a grid of text",
                    "Wang et al. (RAGEN), arXiv 2504.20073"});

}  // namespace
}  // namespace temper::env
