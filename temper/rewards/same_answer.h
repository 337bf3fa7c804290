// Compares mathematical answers.
#pragma once

#include <string_view>

namespace temper::rewards {

// True where `answer` equals `truth`, both the contents of \boxed{}. Compares words, expressions by
// their values (for all values of their variables), and lists, sets, tuples, intervals, matrices,
// equations and inequalities part by part. "x = 3" means 3. Units, percent signs and a number's
// base may be left out, but differ where both name them. A list of candidates, or anything else
// that is not understood, only equals a truth that is written in the same way.
bool same_answer(std::string_view truth, std::string_view answer);

}  // namespace temper::rewards
