// Sokoban, as RAGEN and gym-sokoban have it: boxes are pushed onto targets. A move costs 0.1; a box
// that comes to a target gives 1, one that leaves it -1, and the last one 10 more, which ends the
// episode.
//
// Fields of the row: `map` (rows of # wall, _ floor, O target, X box, P you, B box on a target, S
// you on a target), or `size` ([6, 6]: rows, columns, walls around them included), `boxes` (1) and
// `seed` (0), of which a room is drawn and played backwards, so that it can be solved;
// `max_steps` (100), `format_penalty` (-0.1: the reward of a turn without a move), `instructions`
// (true).
#include <algorithm>

#include "temper/base/error.h"
#include "temper/base/random.h"
#include "temper/env/grid_actions.h"

namespace temper::env {
namespace {

constexpr const char* kSokobanInstructions =
    "You are solving the Sokoban puzzle: push every box onto a target. Boxes cannot be pulled.\n"
    "# is a wall, _ floor, O a target, X a box, \xE2\x88\x9A a box on a target, P you, S you on a "
    "target.\n"
    "The moves are Left, Down, Right and Up. Answer as in <answer>Right</answer>.\n";

constexpr int64_t kLeastSide = 5, kMostSide = 20, kMostBoxes = 8;
constexpr uint64_t kRooms = 1000;  // that are drawn in search of one that can be played
constexpr uint64_t kPulls = 300;   // of the play backwards
constexpr double kMoveReward = -0.1, kBoxReward = 1, kSolvedReward = 10;

struct Cell {
  int64_t row = 0, column = 0;
  bool operator==(const Cell&) const = default;
  Cell moved(const Move& move, int64_t times = 1) const {
    return {row + times * move.down, column + times * move.right};
  }
};

class Sokoban : public Environment {
 public:
  Observation reset(const Json& row) override {
    const RowFields fields{"sokoban", row};
    seed_ = static_cast<uint64_t>(fields.whole("seed", 0, 0, INT64_MAX));
    steps_left_ = fields.whole("max_steps", 100, 1, 10000);
    format_penalty_ = fields.number("format_penalty", -0.1, -1e6, 1e6);
    const std::vector<std::string> map = fields.grid("map", "#_OXPBS");
    if (map.empty())
      draw(row);
    else
      read(map);
    Observation first;
    show_grid(first, fields.truth("instructions", true) ? kSokobanInstructions : "", text());
    return first;
  }

  Observation step(const Turn& turn) override {
    Observation next;
    const std::vector<size_t> moves = moves_of(turn.completion);
    if (moves.empty()) {
      next.reward = format_penalty_;
      next.done = --steps_left_ == 0;
    }
    for (const size_t move : moves) {
      next.reward += kMoveReward + kBoxReward * static_cast<double>(push(kMoves[move]));
      const bool solved = on_targets() == std::ssize(boxes_);
      next.reward += solved ? kSolvedReward : 0;
      next.done = solved || --steps_left_ == 0;
      if (next.done) break;
    }
    if (!next.done) show_grid(next, moves.empty() ? kNoMove : "", text());
    return next;
  }

 private:
  bool is_wall(Cell c) const {
    return c.row < 0 || c.column < 0 || c.row >= std::ssize(floor_) ||
           c.column >= std::ssize(floor_[0]) ||
           floor_[static_cast<size_t>(c.row)][static_cast<size_t>(c.column)] == '#';
  }
  bool is_target(Cell c) const {
    return !is_wall(c) && floor_[static_cast<size_t>(c.row)][static_cast<size_t>(c.column)] == 'O';
  }
  Cell* box_at(Cell c) {
    for (Cell& box : boxes_)
      if (box == c) return &box;
    return nullptr;
  }
  int64_t on_targets() const {
    return std::count_if(boxes_.begin(), boxes_.end(), [this](Cell c) { return is_target(c); });
  }

  // Returns how many boxes more are on targets.
  int64_t push(const Move& move) {
    const int64_t before = on_targets();
    const Cell to = player_.moved(move), behind = player_.moved(move, 2);
    if (is_wall(to)) return 0;
    if (Cell* box = box_at(to)) {
      if (is_wall(behind) || box_at(behind)) return 0;
      *box = behind;
    }
    player_ = to;
    return on_targets() - before;
  }

  void read(const std::vector<std::string>& map) {
    floor_.assign(map.size(), std::string(map[0].size(), '_'));
    boxes_.clear();
    int64_t players = 0, targets = 0;
    for (size_t r = 0; r < map.size(); ++r)
      for (size_t c = 0; c < map[r].size(); ++c) {
        const char cell = map[r][c];
        const Cell here{static_cast<int64_t>(r), static_cast<int64_t>(c)};
        const bool target = cell == 'O' || cell == 'B' || cell == 'S';
        if (cell == '#') floor_[r][c] = '#';
        if (target) floor_[r][c] = 'O';
        targets += target;
        if (cell == 'X' || cell == 'B') boxes_.push_back(here);
        if (cell != 'P' && cell != 'S') continue;
        ++players;
        player_ = here;
      }
    check<DataError>(
        players == 1 && !boxes_.empty() && targets == std::ssize(boxes_) && on_targets() < targets,
        "the environment sokoban: `map` has ", players, " players (P, S), ", boxes_.size(),
        " boxes (X, B) and ", targets,
        " targets (O, B, S), expected one player and as many boxes as targets, not ",
        "all of them there already");
  }

  void draw(const Json& row) {
    const Json size = row.value("size", Json::array({6, 6}));
    const auto side = [](const Json& n) {
      return n.is_number_integer() && n >= kLeastSide && n <= kMostSide;
    };
    check<DataError>(size.is_array() && size.size() == 2 && side(size[0]) && side(size[1]),
                     "the environment sokoban: `size` is ", dump_json(size),
                     ", expected [rows, columns], each from ", kLeastSide, " to ", kMostSide);
    const int64_t boxes = RowFields{"sokoban", row}.whole("boxes", 1, 1, kMostBoxes);
    for (uint64_t room = 0; room < kRooms; ++room)
      if (draw_room(size[0].get<int64_t>(), size[1].get<int64_t>(), boxes, room)) return;
    throw DataError(str("the environment sokoban: found no room of `size` ", dump_json(size),
                        " with ", boxes, " boxes; make it larger, or give fewer boxes"));
  }

  // A walk that leaves floor behind, then play backwards from boxes on their targets.
  bool draw_room(int64_t height, int64_t width, int64_t boxes, uint64_t room) {
    const RandomStream random(seed_, RandomPurpose::kDemo, 4, room);
    uint64_t drawn = 0;
    const auto below = [&](int64_t n) {
      return static_cast<int64_t>(random.below(drawn++, static_cast<uint64_t>(n)));
    };
    floor_.assign(static_cast<size_t>(height), std::string(static_cast<size_t>(width), '#'));
    std::vector<Cell> cells;
    const auto dig = [&](Cell c) {
      if (c.row < 1 || c.column < 1 || c.row > height - 2 || c.column > width - 2) return;
      char& cell = floor_[static_cast<size_t>(c.row)][static_cast<size_t>(c.column)];
      if (cell == '#') cells.push_back(c);
      cell = '_';
    };
    Cell at{1 + below(height - 2), 1 + below(width - 2)};
    size_t ahead = static_cast<size_t>(below(4));
    for (int64_t i = 0; i < 17 * (height + width) / 10; ++i) {
      dig(at);
      dig(at.moved(kMoves[(ahead + 1) % kMoves.size()]));
      if (below(100) < 35) ahead = static_cast<size_t>(below(4));
      const Cell to = at.moved(kMoves[ahead]);
      if (to.row >= 1 && to.column >= 1 && to.row <= height - 2 && to.column <= width - 2) at = to;
    }
    if (std::ssize(cells) < 2 * boxes + 2) return false;
    for (size_t i = 0; i <= static_cast<size_t>(boxes); ++i)
      std::swap(cells[i],
                cells[i + static_cast<size_t>(below(std::ssize(cells) - static_cast<int64_t>(i)))]);
    boxes_.assign(cells.begin(), cells.begin() + boxes);
    for (const Cell c : boxes_)
      floor_[static_cast<size_t>(c.row)][static_cast<size_t>(c.column)] = 'O';
    player_ = cells[static_cast<size_t>(boxes)];
    return play_backwards(below);
  }

  // Keeps the state with the most boxes off their targets, of those the first after the most pulls.
  // False: some box never left its target.
  template <class Below>
  bool play_backwards(const Below& below) {
    std::vector<Cell> best_boxes;
    Cell best_player;
    int64_t best = -1, pulled = 0;
    for (uint64_t i = 0; i < kPulls; ++i) {
      const Move& move = kMoves[static_cast<size_t>(below(4))];
      const Cell to = player_.moved(move);
      if (is_wall(to) || box_at(to)) continue;
      if (Cell* box = box_at(player_.moved(move, -1)); box && below(4) > 0) {
        *box = player_;
        ++pulled;
      }
      player_ = to;
      if (on_targets() > 0 || pulled <= best) continue;
      best = pulled;
      best_boxes = boxes_;
      best_player = player_;
    }
    if (best_boxes.empty()) return false;
    boxes_ = best_boxes;
    player_ = best_player;
    return true;
  }

  std::string text() {
    std::string out;
    for (int64_t r = 0; r < std::ssize(floor_); ++r) {
      if (r > 0) out += '\n';
      for (int64_t c = 0; c < std::ssize(floor_[0]); ++c) {
        const Cell here{r, c};
        const bool target = is_target(here);
        if (here == player_)
          out += target ? 'S' : 'P';
        else if (box_at(here))
          out += target ? "\xE2\x88\x9A" : "X";
        else
          out += is_wall(here) ? '#' : target ? 'O' : '_';
      }
    }
    return out;
  }

  std::vector<std::string> floor_;  // '#', '_' and 'O'
  std::vector<Cell> boxes_;
  Cell player_;
  uint64_t seed_ = 0;
  int64_t steps_left_ = 0;
  double format_penalty_ = 0;
};

const Registered<MakeEnvironment> kSokoban(
    &environments, {"sokoban", &make_environment<Sokoban>,
                    "boxes that are pushed onto targets, seen as a grid of text",
                    "Wang et al. (RAGEN), arXiv 2504.20073"});

}  // namespace
}  // namespace temper::env
