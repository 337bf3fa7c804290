// What names stand for in expressions: functions and variables.
#pragma once

#include <complex>
#include <string_view>

namespace temper::rewards {

using Complex = std::complex<double>;
using Function = Complex (*)(Complex);

// The function of a LaTeX command ("\sin"); null: it has none.
Function find_function(std::string_view command);

// Whether a LaTeX command is a letter or sign that is read as a variable ("\alpha").
bool is_symbol(std::string_view command);

// A number that stands for a variable: all above 0 at point 0, all below at point 1.
Complex number_for(std::string_view name, int point);

}  // namespace temper::rewards
