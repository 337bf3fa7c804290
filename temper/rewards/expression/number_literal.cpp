#include "temper/rewards/expression/number_literal.h"

#include <charconv>
#include <cmath>
#include <string>
#include <system_error>

#include "temper/rewards/spelling.h"

namespace temper::rewards {
namespace {

size_t digits_from(std::string_view text, size_t at) {
  while (at < text.size() && is_digit(text[at])) ++at;
  return at;
}

bool exponent_follows(std::string_view text, size_t at) {
  if (at + 1 >= text.size() || (text[at] != 'e' && text[at] != 'E')) return false;
  if (is_digit(text[at + 1])) return true;
  return (text[at + 1] == '-' || text[at + 1] == '+') && at + 2 < text.size() &&
         is_digit(text[at + 2]);
}

// 0.1\overline{6}: the digits under the line go on for ever. whole, end: where the digits before
// and after the point end.
std::optional<NumberLiteral> repeating(std::string_view text, size_t whole, size_t end) {
  if (whole == end) return {};
  std::string_view rest = text.substr(end);
  const std::string_view line = "\\overline{";
  if (!rest.starts_with(line)) return {};
  rest.remove_prefix(line.size());
  const size_t length = digits_from(rest, 0);
  if (length == 0 || length > 15 || length == rest.size() || rest[length] != '}') return {};
  double head = 0, tail = 0;
  const std::string written = "0" + std::string(text.substr(0, end)) + "0";
  std::from_chars(written.data(), written.data() + written.size(), head);
  std::from_chars(rest.data(), rest.data() + length, tail);
  const double scale = std::pow(10.0, -static_cast<double>(end - whole - 1));
  return NumberLiteral{
      {head + scale * tail / (std::pow(10.0, static_cast<double>(length)) - 1), {}},
      end + line.size() + length + 1};
}

}  // namespace

std::optional<NumberLiteral> read_number(std::string_view text) {
  size_t end = digits_from(text, 0);
  const size_t whole = end;
  if (end < text.size() && text[end] == '.') end = digits_from(text, end + 1);
  if (end == 0 || (whole == 0 && end == 1)) return {};
  if (const auto repeated = repeating(text, whole, end)) return repeated;
  const bool scientific = exponent_follows(text, end);
  if (scientific) end = digits_from(text, end + (is_digit(text[end + 1]) ? 1 : 2));
  double value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + end, value);
  if (error == std::errc::result_out_of_range && whole == end && !scientific)
    return NumberLiteral{integer_of_digits(text.substr(0, end)), end};
  if (error != std::errc() || stop != text.data() + end) return {};
  NumberLiteral out{{value, {}}, end};
  const size_t last = text.find_last_not_of('0', end - 1);
  if (whole == end || (!scientific && last != std::string_view::npos && last <= whole))
    out.value.remainder = remainder_of_digits(text.substr(0, whole));
  return out;
}

}  // namespace temper::rewards
