// A grid in which something lies: the policy is told in which directions, and says which way it
// goes. The first of the words north, south, east and west in a turn is its step; 1 for coming to
// the place, which ends the episode. Fields of the row: `size` (5), `start` and `goal` ([x, y], x
// to the east, y to the north; where they are silent, drawn from `seed`).
#include <array>

#include "temper/base/error.h"
#include "temper/base/random.h"
#include "temper/env/environment.h"

namespace temper::env {
namespace {

constexpr int64_t kLargest = 1000;

struct Place {
  int64_t x = 0, y = 0;
  bool operator==(const Place&) const = default;
};

struct Direction {
  const char* name;
  Place step;
};
constexpr std::array<Direction, 4> kDirections{
    {{"north", {0, 1}}, {"south", {0, -1}}, {"east", {1, 0}}, {"west", {-1, 0}}}};

class GridWorld : public Environment {
 public:
  Observation reset(const Json& row) override {
    size_ = whole_number(row, "size", 5);
    check<DataError>(size_ >= 2 && size_ <= kLargest, "the environment grid_world: `size` is ",
                     size_, ", expected 2 to ", kLargest);
    const RandomStream random(static_cast<uint64_t>(whole_number(row, "seed", 0)),
                              RandomPurpose::kDemo, 1);
    const uint64_t places = static_cast<uint64_t>(size_ * size_);
    at_ = place(row, "start", random.below(0, places));
    // Another place than the start.
    const uint64_t start = static_cast<uint64_t>(at_.x + at_.y * size_);
    goal_ = place(row, "goal", (start + 1 + random.below(1, places - 1)) % places);
    Observation first;
    say(first, describe());
    return first;
  }

  Observation step(const Turn& turn) override {
    Observation next;
    const Direction* towards = direction_of(turn.completion);
    const Place to =
        towards ? Place{at_.x + towards->step.x, at_.y + towards->step.y} : Place{-1, -1};
    const bool inside = to.x >= 0 && to.y >= 0 && to.x < size_ && to.y < size_;
    if (inside) at_ = to;
    next.done = at_ == goal_;
    next.reward = next.done ? 1 : 0;
    if (!next.done)
      say(next, (!towards ? "say north, south, east or west; "
                 : inside ? ""
                          : "a wall; ") +
                    describe());
    return next;
  }

 private:
  static int64_t whole_number(const Json& row, const char* field, int64_t otherwise) {
    const Json value = row.value(field, Json(otherwise));
    check<DataError>(value.is_number_integer() && value >= 0,
                     "the environment grid_world reads the field `", field,
                     "`, a whole number; found ", dump_json(value));
    return value.get<int64_t>();
  }
  Place place(const Json& row, const char* field, uint64_t drawn) const {
    const int64_t number = static_cast<int64_t>(drawn);
    const Json value = row.value(field, Json::array({number % size_, number / size_}));
    const auto inside = [this](const Json& n) {
      return n.is_number_integer() && n >= 0 && n < size_;
    };
    check<DataError>(value.is_array() && value.size() == 2 && inside(value[0]) && inside(value[1]),
                     "the environment grid_world: `", field, "` is ", dump_json(value),
                     ", expected [x, y] from 0 to ", size_ - 1);
    return {value[0].get<int64_t>(), value[1].get<int64_t>()};
  }

  static const Direction* direction_of(const std::string& said) {
    const Direction* first = nullptr;
    size_t at = std::string::npos;
    for (const Direction& d : kDirections)
      if (const size_t found = said.find(d.name); found < at) {
        at = found;
        first = &d;
      }
    return first;
  }

  std::string describe() const {
    std::string where;
    if (goal_.y != at_.y) where = goal_.y > at_.y ? "north" : "south";
    if (goal_.x != at_.x) {
      if (!where.empty()) where += " and ";
      where += goal_.x > at_.x ? "east" : "west";
    }
    return "it lies " + where;
  }
  static void say(Observation& observation, const std::string& text) {
    observation.messages.push_back({{"role", "user"}, {"content", text}});
  }

  int64_t size_ = 5;
  Place at_, goal_;
};

const Registered<MakeEnvironment> kGridWorld(
    &environments,
    {"grid_world", &make_environment<GridWorld>,
     "a walk by north, south, east and west that finds what lies somewhere in a grid"});

}  // namespace
}  // namespace temper::env
