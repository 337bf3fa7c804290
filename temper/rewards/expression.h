// Values of mathematical expressions, as LaTeX or plain text writes them. Never runs anything; a
// bounded depth and length.
#pragma once

#include <optional>
#include <string_view>

#include "temper/rewards/value.h"

namespace temper::rewards {

struct Evaluated {
  Value value;
  bool has_variables = false;
};

// The value of an expression in the spelling of spelling.h, with numbers for its variables that
// `point` chooses: single letters but e and i, Greek ones, with or without an index. Understands
// numbers (also 0.\overline{3}, 1.5e3 and mixed ones, 3\frac12), + - * / ^ !, brackets, fractions,
// roots, binomials, logarithms, trigonometry. nullopt: it is no expression, or has no finite value.
std::optional<Evaluated> evaluate_at(std::string_view text, int point);

// Whether two expressions have the same values: for all of their variables, as far as a few numbers
// for these tell. False where one has none.
bool same_value(std::string_view a, std::string_view b);

}  // namespace temper::rewards
