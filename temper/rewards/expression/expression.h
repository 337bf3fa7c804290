// Values of mathematical expressions in LaTeX or plain text. Nothing is ever executed; depth and
// length are bounded.
#pragma once

#include <optional>
#include <string_view>

#include "temper/rewards/expression/value.h"

namespace temper::rewards {

struct Evaluated {
  Value value;
  bool has_variables = false;
};

// The value of an expression in the spelling of spelling.h. `point` chooses the numbers that stand
// for its variables: single letters except e and i, and Greek ones, with or without an index.
// Understood are numbers (also 0.\overline{3}, 1.5e3 and mixed numbers, 3\frac12), + - * / ^ !,
// brackets, fractions, roots, binomials, logarithms and trigonometry. nullopt: it is no expression,
// or has no finite value.
std::optional<Evaluated> evaluate_at(std::string_view text, int point);

// True where two expressions have equal values at several points, which stand for all values of
// their variables. False where one has no value.
bool same_value(std::string_view a, std::string_view b);

}  // namespace temper::rewards
