// Pairs in forward passes: rows as units, and the sums over each side's tokens.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "temper/data/rows/preference_row.h"
#include "temper/train/forward_pass.h"

namespace temper::preference {

using data::PreferenceRow;
using data::Side;

// The targets of a unit.
enum class Targets {
  kCompletions,       // the tokens of completions
  kWithChosenPrompt,  // and of the prompt before the chosen one
  kScores             // none, but a scalar head reads each side's last token
};

// The row as the `index`-th unit of a step. What both sides share stands once.
train::PackUnit unit_of(const PreferenceRow& row, int64_t index, Targets targets);

// How many predictions of the unit the loss counts: each side's targets, shared ones for both, or
// its scored tokens.
double supervised(const train::PackUnit& unit);
// How many of them are targets of this side's completion.
double supervised(const train::PackUnit& unit, Side side);

// The targets of one side of a pass's units, those that belong to both sides among them; of pairs
// with both sides, the sides' lists of units are equal. Suffix _S: the units that have the side.
struct SideTargets {
  std::vector<int64_t> unit_S;  // the step's units, ascending in their order in the pass
  at::Tensor count_S;           // float64: how many targets each has
  at::Tensor target_T, slot_T;  // int64: a target of the pass, and its unit's place in unit_S

  // The sums over each unit's targets [S], float64, in the targets' order: the same bits whatever
  // else is in the pass. Differentiable.
  at::Tensor sum(const at::Tensor& value_M) const;
};
// `prompt`: of the prompt too, where it has targets.
SideTargets side_targets(const train::ForwardPass& pass, Side side, bool prompt = false);

// The same of scalars: of each of the pass's units, its number among the scored tokens.
struct SideScores {
  std::vector<int64_t> unit_S;
  at::Tensor score_S;  // int64
};
SideScores side_scores(const train::ForwardPass& pass, Side side);

// The units that have both sides: their places in one side's list and in the other's.
struct Matched {
  at::Tensor chosen_P, rejected_P;  // int64
};
Matched matched(const std::vector<int64_t>& chosen, const std::vector<int64_t>& rejected);

}  // namespace temper::preference
