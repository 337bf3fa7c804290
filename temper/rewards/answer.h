// Answers to questions of arithmetic, as models and datasets write them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace temper::rewards {

// The value of "1,234.50", "$18", "-3", "75%", "3/4", "\frac{3}{4}", "2^10", "\sqrt{2}/2",
// "(1+2)*3": numbers joined by + - * / ^ with LaTeX's spellings; a percent sign divides by 100.
// Units, "x =" and closing points around it are left out. nullopt: it is none. Never runs anything;
// a bounded depth and length.
std::optional<double> evaluate(std::string_view text);

// The last number in the text ("... so 1,200 apples." -> 1200), without what stands around it.
std::optional<double> last_number(std::string_view text);

// The first one ("12 for 3 days" -> 12).
std::optional<double> first_number(std::string_view text);

// The content of the last \boxed{...} (or \fbox), braces balanced.
std::optional<std::string> last_boxed(std::string_view text);

// Without the spaces, tabs and line ends around it.
std::string_view trimmed(std::string_view text);

// Equal up to the rounding of doubles.
bool same_number(double a, double b);

}  // namespace temper::rewards
