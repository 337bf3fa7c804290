#include "temper/rewards/answer.h"

#include <algorithm>
#include <cmath>

#include "temper/rewards/expression/expression.h"
#include "temper/rewards/spelling.h"
#include "temper/rewards/units.h"

namespace temper::rewards {
namespace {

constexpr size_t kLongestAnswer = 1000;

}  // namespace

std::string_view trimmed(std::string_view text) {
  const char* space = " \t\r\n";
  const size_t first = text.find_first_not_of(space);
  return first == std::string_view::npos
             ? std::string_view()
             : text.substr(first, text.find_last_not_of(space) + 1 - first);
}

std::optional<double> evaluate(std::string_view text) {
  if (text.size() > kLongestAnswer) return {};
  const size_t equals = text.rfind('=');  // "x = 3"
  std::string spelled =
      plain_spelling(equals == std::string_view::npos ? text : text.substr(equals + 1));
  const bool percent = take_unit(spelled).percent;
  const std::optional<Evaluated> found = evaluate_at(spelled, 0);
  if (!found || found->has_variables || found->value.logarithm) return {};
  if (found->value.number.imag() != 0) return {};
  return found->value.number.real() / (percent ? 100 : 1);
}

namespace {

bool in_number(char c) { return is_digit(c) || c == ',' || c == '.'; }

// The number that has a digit at text[at].
std::optional<double> number_around(std::string_view text, size_t at) {
  size_t begin = at, end = at + 1;
  while (begin > 0 && in_number(text[begin - 1])) --begin;
  while (end < text.size() && in_number(text[end])) ++end;
  while (!is_digit(text[end - 1])) --end;
  while (!is_digit(text[begin]) && !(text[begin] == '.' && is_digit(text[begin + 1]))) ++begin;
  // A sign belongs to the number unless it joins two of them.
  size_t before = begin;
  while (before > 0 && text[before - 1] == '$') --before;
  const bool minus = before > 0 && text[before - 1] == '-' &&
                     !(before > 1 && (is_digit(text[before - 2]) || text[before - 2] == ')'));
  std::string number(text.substr(begin, end - begin));
  std::erase(number, ',');
  const std::optional<double> value = evaluate(number);
  return value && minus ? std::optional(-*value) : value;
}

}  // namespace

std::optional<double> first_number(std::string_view text) {
  const size_t at = text.find_first_of("0123456789");
  return at == std::string_view::npos ? std::nullopt : number_around(text, at);
}

std::optional<double> last_number(std::string_view text) {
  const size_t at = text.find_last_of("0123456789");
  return at == std::string_view::npos ? std::nullopt : number_around(text, at);
}

std::optional<std::string> last_boxed(std::string_view text) {
  size_t at = std::string_view::npos, open = 0;
  for (const std::string_view command : {"\\boxed{", "\\fbox{"}) {
    const size_t found = text.rfind(command);
    if (found == std::string_view::npos || (at != std::string_view::npos && found < at)) continue;
    at = found;
    open = found + command.size();
  }
  if (at == std::string_view::npos) return {};
  int depth = 1;
  for (size_t i = open; i < text.size(); ++i) {
    if (text[i] == '{') ++depth;
    if (text[i] == '}' && --depth == 0) return std::string(text.substr(open, i - open));
  }
  return {};
}

bool same_number(double a, double b) {
  return std::abs(a - b) <= 1e-9 * std::max({1.0, std::abs(a), std::abs(b)});
}

}  // namespace temper::rewards
