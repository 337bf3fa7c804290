// Completions after prompts of other rows, from which KTO estimates its divergence.
#pragma once

#include <span>
#include <vector>

#include "temper/preference/sides.h"

namespace temper::preference {

// The completions of a batch, each after the prompt of the next one and the last one after the
// first prompt. They stand in the rows' order; where there are pairs, all chosen ones before all
// rejected ones, as TRL deals pairs out. One completion alone stays with its own prompt.
class Mismatched {
 public:
  explicit Mismatched(std::span<const PreferenceRow> rows);
  // Units whose completions are chosen sides; they refer to this object.
  std::span<const train::PackUnit> units() const { return units_; }

 private:
  std::vector<PreferenceRow> rows_;
  std::vector<train::PackUnit> units_;
};

}  // namespace temper::preference
