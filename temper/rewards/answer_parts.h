// Splits the text of an answer, in the spelling of spelling.h, into its parts.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace temper::rewards {

using Parts = std::vector<std::string_view>;

// A text in one pair of brackets: both brackets, such as "(]", and the parts between its commas.
struct Bracketed {
  std::string kind;
  Parts parts;
  bool is_set() const { return kind == "\\{\\}" || (kind == "{}" && parts.size() > 1); }
};
// nullopt: it is in no brackets, or in several pairs side by side.
std::optional<Bracketed> bracketed(std::string_view text);
// True for a single element in round or curly brackets, or a set of one: the brackets mean nothing.
bool is_mere_group(const Bracketed& b);

// Both readings of "\pm 3", "+3,-3"; \mp has the other sign. nullopt: there is none of these.
std::optional<std::string> both_signs(std::string_view text);

// Sides of equations, inequalities, "x \in .."; one side and no signs where there are none.
struct Relation {
  Parts sides;
  std::vector<std::string> signs;  // one fewer: "=", "<", "\\le", "\\in", ..
};
Relation relation_in(std::string_view text);
bool is_equation(const Relation& r);
// The sign of an inequality that is read from right to left: "<" for ">".
std::string turned(const std::string& sign);
// True for x, x_1, \theta, f(x), (x, y): what an equation may define.
bool is_name(std::string_view text);

struct Matrix {
  std::string kind;  // "vmatrix" (determinant), "Vmatrix" (norm), or "matrix" for all others
  std::vector<Parts> rows;
};
std::optional<Matrix> matrix_in(std::string_view text);

// 1010_2: digits and their base, which is empty where none is named.
struct Numeral {
  std::string digits, base;
};
std::optional<Numeral> numeral(std::string_view text);

// The digits of a number written out, without zeros that say nothing; nullopt: it is more than
// that.
std::optional<std::string> written_out(std::string_view text);

}  // namespace temper::rewards
