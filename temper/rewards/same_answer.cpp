#include "temper/rewards/same_answer.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <string>
#include <vector>

#include "temper/rewards/answer.h"
#include "temper/rewards/answer_parts.h"
#include "temper/rewards/expression/expression.h"
#include "temper/rewards/spelling.h"
#include "temper/rewards/units.h"

namespace temper::rewards {
namespace {

constexpr size_t kLongestCompared = 1000;
constexpr size_t kMostItems = 50;
constexpr int kDeepestAnswer = 20;

bool same(std::string_view truth, std::string_view answer, int depth);

bool is_space(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

// One space stays between digits: "3 4" is no 34.
std::string without_space(std::string_view text) {
  std::string out;
  bool space = false;
  for (const char c : text) {
    if (is_space(c) || c == '$') {
      space = true;
      continue;
    }
    if (space && !out.empty() && is_digit(out.back()) && is_digit(c)) out += ' ';
    out += c;
    space = false;
  }
  while (!out.empty() && out.back() == '.') out.pop_back();
  return out;
}

// True where each element of one equals an element of the other.
bool same_set(const Parts& a, const Parts& b, int depth) {
  if (a.size() > kMostItems || b.size() > kMostItems) return false;
  std::vector<bool> found(b.size());
  for (const std::string_view one : a) {
    bool any = false;
    for (size_t i = 0; i < b.size(); ++i)
      if (same(one, b[i], depth)) any = found[i] = true;
    if (!any) return false;
  }
  return std::find(found.begin(), found.end(), false) == found.end();
}

bool same_in_order(const Parts& a, const Parts& b, int depth) {
  if (a.size() != b.size() || a.size() > kMostItems) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (!same(a[i], b[i], depth)) return false;
  return true;
}

bool same_bracketed(const Bracketed& truth, const Bracketed& answer, int depth) {
  if (truth.is_set() || answer.is_set())
    return truth.is_set() && answer.is_set() && same_set(truth.parts, answer.parts, depth);
  return truth.kind == answer.kind && same_in_order(truth.parts, answer.parts, depth);
}

// Compares where one of the two is a list without brackets.
bool same_list(const Parts& truth, const Parts& answer, int depth) {
  if (truth.size() > 1 && answer.size() > 1) return same_set(truth, answer, depth);
  const bool truth_is_list = truth.size() > 1;
  const Parts& list = truth_is_list ? truth : answer;
  const std::optional<Bracketed> other = bracketed(truth_is_list ? answer[0] : truth[0]);
  if (!other || other->parts.size() < 2) return false;
  const Parts& a = truth_is_list ? list : other->parts;
  const Parts& b = truth_is_list ? other->parts : list;
  if (other->is_set()) return same_set(a, b, depth);
  return other->kind == "()" && same_in_order(a, b, depth);
}

bool names_variable(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char c) { return is_letter(c); });
}

// The value that an answer's equations give, where the truth has none: 3 in "x = 3", "a + b = 3"
// and "1 + 2 = 3". A false equation between numbers gives none.
std::optional<std::string_view> said_by(const Relation& r) {
  for (const std::string& sign : r.signs)
    if (sign != "=" && sign != "\\approx" && sign != "\\in") return {};
  const std::string_view last = r.sides.back();
  for (size_t i = 0; i + 1 < r.sides.size(); ++i) {
    const std::string_view side = r.sides[i];
    const bool empty_is_fine = side.empty() && i == 0 && r.signs[0] != "\\in";
    if (empty_is_fine || (r.signs[i] == "\\in" ? is_name(side) : names_variable(side))) continue;
    if (!same_value(side, last)) return {};
  }
  return last;
}

// l = r and l' = r' where l - r is a multiple of l' - r'.
bool same_equation(const Relation& a, const Relation& b) {
  std::optional<std::complex<double>> ratio;
  for (int point = 0; point < 3; ++point) {
    const auto difference = [&](const Relation& r) -> std::optional<std::complex<double>> {
      const auto left = evaluate_at(r.sides[0], point), right = evaluate_at(r.sides[1], point);
      if (!left || !right || left->value.logarithm || right->value.logarithm) return {};
      return left->value.number - right->value.number;
    };
    const auto x = difference(a), y = difference(b);
    if (!x || !y || std::abs(*x) < 1e-9 || std::abs(*y) < 1e-9) return false;
    const std::complex<double> now = *x / *y;
    if (ratio && std::abs(*ratio - now) > 1e-9 * std::abs(now)) return false;
    ratio = now;
  }
  return true;
}

bool same_relation(const Relation& truth, const Relation& answer, int depth) {
  if (truth.signs.size() != answer.signs.size()) return false;
  if (same_in_order(truth.sides, answer.sides, depth) && truth.signs == answer.signs) return true;
  std::vector<std::string> signs(answer.signs.rbegin(), answer.signs.rend());
  for (std::string& sign : signs) sign = turned(sign);
  const Parts sides(answer.sides.rbegin(), answer.sides.rend());
  if (same_in_order(truth.sides, sides, depth) && truth.signs == signs) return true;
  return is_equation(truth) && is_equation(answer) && same_equation(truth, answer);
}

bool same_matrix(const Matrix& a, const Matrix& b, int depth) {
  return a.kind == b.kind && a.rows.size() == b.rows.size() &&
         std::equal(a.rows.begin(), a.rows.end(), b.rows.begin(),
                    [&](const Parts& x, const Parts& y) { return same_in_order(x, y, depth); });
}

bool same_number_or_expression(const std::string& a, const std::string& b) {
  const auto x = written_out(a), y = written_out(b);
  return x && y ? *x == *y : same_value(a, b);
}

bool same_single(std::string_view truth, std::string_view answer) {
  if (without_space(truth) == without_space(answer)) return true;
  if (const auto x = numeral(truth), y = numeral(answer);
      x && y && !(x->base.empty() && y->base.empty()))
    return x->digits == y->digits && (x->base.empty() || y->base.empty() || x->base == y->base);
  std::string a(truth), b(answer);
  const Unit in_truth = take_unit(a), in_answer = take_unit(b);
  if (!in_truth.name.empty() && !in_answer.name.empty() && in_truth.name != in_answer.name)
    return false;
  if (a.empty() || b.empty()) return false;
  if (same_number_or_expression(a, b)) return true;
  // Only one of the two has a percent sign: the other may be a fraction of 1 (50% and 0.5).
  if (in_truth.percent == in_answer.percent) return false;
  std::string& percent = in_truth.percent ? a : b;
  percent = "(" + percent + ")/100";
  return same_value(a, b);
}

bool same(std::string_view truth, std::string_view answer, int depth) {
  truth = trimmed(truth);
  answer = trimmed(answer);
  if (truth.empty() || answer.empty() || depth > kDeepestAnswer) return false;
  const auto more_than_one = [](const Parts& parts) { return parts.size() > 1; };
  if (const Parts a = split_outside(truth, ",;"), b = split_outside(answer, ",;");
      more_than_one(a) || more_than_one(b)) {
    const Relation r = relation_in(a.size() == 1 ? a[0] : b[0]);
    if (std::min(a.size(), b.size()) == 1 && is_equation(r) && is_name(r.sides[0]))
      return a.size() == 1 ? same(r.sides[1], answer, depth + 1)
                           : same(truth, r.sides[1], depth + 1);
    return same_list(a, b, depth + 1);
  }
  const Relation in_truth = relation_in(truth), in_answer = relation_in(answer);
  if (in_truth.signs.empty() != in_answer.signs.empty()) {
    if (in_truth.signs.empty()) {
      const auto said = said_by(in_answer);
      return said && same(truth, *said, depth + 1);
    }
    return is_equation(in_truth) && is_name(in_truth.sides[0]) &&
           same(in_truth.sides[1], answer, depth + 1);
  }
  if (!in_truth.signs.empty()) return same_relation(in_truth, in_answer, depth + 1);
  if (const Parts a = split_outside(truth, kUnion), b = split_outside(answer, kUnion);
      more_than_one(a) || more_than_one(b))
    return more_than_one(a) && more_than_one(b) && same_set(a, b, depth + 1);
  const auto x = bracketed(truth), y = bracketed(answer);
  if (x && y && x->is_set() && y->is_set()) return same_bracketed(*x, *y, depth + 1);
  if (x && is_mere_group(*x)) return same(x->parts[0], answer, depth + 1);
  if (y && is_mere_group(*y)) return same(truth, y->parts[0], depth + 1);
  if (x && y && (x->parts.size() > 1 || y->parts.size() > 1))
    return same_bracketed(*x, *y, depth + 1);
  if (const auto a = matrix_in(truth), b = matrix_in(answer); a || b)
    return a && b && same_matrix(*a, *b, depth + 1);
  if (const Parts a = split_outside(truth, ":"), b = split_outside(answer, ":");
      more_than_one(a) || more_than_one(b))
    return same_in_order(a, b, depth + 1);
  return same_single(truth, answer);
}

}  // namespace

bool same_answer(std::string_view truth, std::string_view answer) {
  if (without_space(truth) == without_space(answer)) return !without_space(truth).empty();
  if (truth.size() > kLongestCompared || answer.size() > kLongestCompared) return false;
  if (const auto words = words_of(truth)) {
    const auto said = words_of("\\text{" + std::string(without_text_command(answer)) + "}");
    return said && *said == *words;
  }
  std::string a = plain_spelling(without_text_command(truth));
  std::string b = plain_spelling(without_text_command(answer));
  a = both_signs(a).value_or(a);
  b = both_signs(b).value_or(b);
  return same(a, b, 0);
}

}  // namespace temper::rewards
