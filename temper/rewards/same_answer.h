// Whether an answer of mathematics is the right one.
#pragma once

#include <string_view>

namespace temper::rewards {

// Compares what stood in \boxed{}: words, expressions by their values (for all of their variables),
// lists, sets, tuples, intervals, matrices, equations and inequalities part by part. "x = 3" says
// 3; units, percent signs and a number's base may be left out, and differ where both name them. A
// list of candidates, or anything else that is not understood, is no answer unless it is written
// like the truth.
bool same_answer(std::string_view truth, std::string_view answer);

}  // namespace temper::rewards
