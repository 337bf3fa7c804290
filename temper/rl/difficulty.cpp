#include "temper/rl/difficulty.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/data/rows/row_texts.h"

namespace temper {

template <>
inline constexpr std::array enum_names<rl::DifficultySection::Mode> = {"none", "skip", "weigh"};

}  // namespace temper

namespace temper::rl {
namespace {

constexpr double kLeastWeight = 0.1;  // so that a prompt's success is measured again

// [0, 1), of the row and the draw.
double uniform_of(const std::string& row, int64_t key, uint64_t seed) {
  const uint64_t bits = data::hash_of_text(str(row, " ", key), seed).low;
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace

void DifficultySection::fields(Fields& f) {
  f.add("mode", mode,
        "curriculum by the mean reward that a prompt had when it was sampled last: skip passes "
        "over prompts at or beyond lowest and highest, weigh draws those in the middle most often");
  f.add("lowest", lowest, "mean reward of a prompt that the policy never solves");
  f.add("highest", highest, "mean reward of a prompt that the policy always solves");
}

bool Difficulty::takes(const std::string& row, int64_t key) const {
  const auto known = success_.find(row);
  if (!any() || known == success_.end()) return true;
  const double success = known->second;
  if (section_.mode == DifficultySection::Mode::kSkip)
    return success > section_.lowest && success < section_.highest;
  const double p =
      std::clamp((success - section_.lowest) / (section_.highest - section_.lowest), 0.0, 1.0);
  return uniform_of(row, key, seed_) < std::max(kLeastWeight, 4 * p * (1 - p));
}

Json Difficulty::to_json() const { return success_; }

void Difficulty::restore(const Json& json, const std::string& where) {
  check<DataError>(json.is_object(), where, ": `difficulty` must be an object");
  success_.clear();
  for (const auto& [row, success] : json.items()) {
    check<DataError>(success.is_number(), where, ": `difficulty` must hold numbers");
    success_[row] = success.get<double>();
  }
}

}  // namespace temper::rl
