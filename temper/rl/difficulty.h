// A curriculum from the policy's own success: prompts that it always or never solves are drawn less
// often in later passes over the data.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "temper/base/config/config.h"
#include "temper/base/json.h"

namespace temper::rl {

// The section `rl.difficulty`.
struct DifficultySection {
  // kSkip: prompts whose success is outside (lowest, highest) are passed over. kWeigh: a prompt is
  // drawn with probability max(0.1, 4 p (1 - p)), p its success between lowest and highest.
  enum class Mode { kNone, kSkip, kWeigh };
  Mode mode = Mode::kNone;
  double lowest = 0, highest = 1;  // rewards of prompts that are never, or always, solved
  void fields(Fields& f);
};

// The success of each prompt: the mean reward of its completions when it was sampled last.
class Difficulty {
 public:
  Difficulty(const DifficultySection& section, uint64_t seed) : section_(section), seed_(seed) {}

  bool any() const { return section_.mode != DifficultySection::Mode::kNone; }
  // Whether the row is sampled now. The answer depends on its success so far, the seed and `key`,
  // the number of the draw; a row without success so far is.
  bool takes(const std::string& row, int64_t key) const;
  // How many rows have been sampled.
  int64_t size() const { return static_cast<int64_t>(success_.size()); }
  void learn(const std::string& row, double success) { success_[row] = success; }

  Json to_json() const;                                      // for checkpoints
  void restore(const Json& json, const std::string& where);  // throws DataError

 private:
  const DifficultySection& section_;
  uint64_t seed_;
  std::map<std::string, double> success_;  // by "FILE:LINE"
};

}  // namespace temper::rl
