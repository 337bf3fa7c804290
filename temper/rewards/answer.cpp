#include "temper/rewards/answer.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <utility>

namespace temper::rewards {
namespace {

constexpr size_t kLongestAnswer = 1000;
constexpr int kDeepest = 50;

bool digit(char c) { return c >= '0' && c <= '9'; }

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

// Recursive descent over sum > product > sign > power > atom. Every step either moves on or fails.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  std::optional<double> parse() {
    const std::optional<double> value = sum(0);
    return value && at_ == text_.size() && std::isfinite(*value) ? value : std::nullopt;
  }

 private:
  using Value = std::optional<double>;

  bool take(std::string_view token) {
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }

  Value sum(int depth) {
    if (depth > kDeepest) return {};
    Value left = product(depth);
    while (left) {
      const bool plus = take("+");
      if (!plus && !take("-")) break;
      const Value right = product(depth);
      if (!right) return {};
      *left += plus ? *right : -*right;
    }
    return left;
  }

  Value product(int depth) {
    Value left = signed_value(depth);
    while (left) {
      const bool times = take("*"), over = !times && take("/");
      // What stands side by side is multiplied: 2\sqrt{3}, 3(1+2).
      if (!times && !over && !(at_ < text_.size() && (text_[at_] == '\\' || text_[at_] == '(')))
        break;
      const Value right = signed_value(depth);
      if (!right || (over && *right == 0)) return {};
      *left = over ? *left / *right : *left * *right;
    }
    return left;
  }

  Value signed_value(int depth) {
    if (depth > kDeepest) return {};
    if (take("-")) {
      const Value value = signed_value(depth + 1);
      return value ? Value(-*value) : value;
    }
    if (take("+")) return signed_value(depth + 1);
    return power(depth);
  }

  Value power(int depth) {
    Value base = atom(depth);
    if (base && take("%")) *base /= 100;
    if (!base || !take("^")) return base;
    const Value exponent =
        at_ < text_.size() && text_[at_] == '{' ? group('{', '}', depth) : signed_value(depth + 1);
    return exponent ? Value(std::pow(*base, *exponent)) : exponent;
  }

  Value group(char open, char close, int depth) {
    if (!take({&open, 1})) return {};
    const Value value = sum(depth + 1);
    return value && take({&close, 1}) ? value : Value();
  }

  Value argument(int depth) {  // \frac12 is \frac{1}{2}
    if (at_ < text_.size() && text_[at_] == '{') return group('{', '}', depth);
    if (at_ < text_.size() && digit(text_[at_])) return text_[at_++] - '0';
    return {};
  }

  Value atom(int depth) {
    if (take("\\frac")) {
      const Value above = argument(depth), below = above ? argument(depth) : Value();
      return below && *below != 0 ? Value(*above / *below) : Value();
    }
    if (take("\\sqrt")) {
      const Value value = argument(depth);
      return value && *value >= 0 ? Value(std::sqrt(*value)) : Value();
    }
    if (take("\\pi")) return 3.14159265358979323846;
    if (at_ < text_.size() && text_[at_] == '(') return group('(', ')', depth);
    if (at_ < text_.size() && text_[at_] == '{') return group('{', '}', depth);
    return number();
  }

  Value number() {
    double value = 0;
    const char *begin = text_.data() + at_, *end = text_.data() + text_.size();
    if (begin == end || (!digit(*begin) && *begin != '.')) return {};
    const auto [stop, error] = std::from_chars(begin, end, value, std::chars_format::fixed);
    if (error != std::errc()) return {};
    at_ += static_cast<size_t>(stop - begin);
    return value;
  }

  std::string_view text_;
  size_t at_ = 0;
};

// "1,234" -> "1234", but "1,2" stays: it is a list.
void join_thousands(std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool group = text[i] == ',' && i > 0 && digit(text[i - 1]) && i + 3 < text.size() &&
                       digit(text[i + 1]) && digit(text[i + 2]) && digit(text[i + 3]) &&
                       !(i + 4 < text.size() && digit(text[i + 4]));
    if (!group) out += text[i];
  }
  text = std::move(out);
}

std::string spelled_plainly(std::string_view answer) {
  std::string text(answer);
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 22> kSpellings{
      {{"\\left", ""},
       {"\\right", ""},
       {"\\!", ""},
       {"\\,", ""},
       {"\\;", ""},
       {"\\ ", ""},
       {"{,}", ","},
       {"\\dfrac", "\\frac"},
       {"\\tfrac", "\\frac"},
       {"\\cdot", "*"},
       {"\\times", "*"},
       {"\\div", "/"},
       {"\\%", "%"},
       {"\\$", ""},
       {"$", ""},
       {"−", "-"},
       {"×", "*"},
       {"÷", "/"},
       {"π", "\\pi"},
       {"**", "^"},
       {"^\\circ", ""},
       {"°", ""}}};
  for (const auto& [from, to] : kSpellings) replace_all(text, from, to);
  // \text{ dollars} says nothing about the number.
  for (size_t at = text.find("\\text"); at != std::string::npos; at = text.find("\\text", at)) {
    const size_t open = text.find('{', at), close = text.find('}', at);
    if (open == std::string::npos || close == std::string::npos || close < open) break;
    text.erase(at, close + 1 - at);
  }
  const size_t equals = text.rfind('=');  // "x = 3"
  if (equals != std::string::npos) text.erase(0, equals + 1);
  // A word after the number is its unit.
  size_t end = text.size();
  while (end > 0 && (std::isspace(static_cast<unsigned char>(text[end - 1])) ||
                     std::isalpha(static_cast<unsigned char>(text[end - 1])) ||
                     text[end - 1] == '.' || text[end - 1] == '!'))
    --end;
  const size_t word = text.find_first_not_of(" \t\n", end);
  if (word != std::string::npos && end > 0 && text[end - 1] != '\\') text.resize(end);
  std::erase_if(text, [](char c) { return std::isspace(static_cast<unsigned char>(c)); });
  while (!text.empty() && (text.back() == '.' || text.back() == ',')) text.pop_back();
  join_thousands(text);
  return text;
}

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
  return Parser(spelled_plainly(text)).parse();
}

namespace {

bool in_number(char c) { return digit(c) || c == ',' || c == '.'; }

// The number that has a digit at text[at].
std::optional<double> number_around(std::string_view text, size_t at) {
  size_t begin = at, end = at + 1;
  while (begin > 0 && in_number(text[begin - 1])) --begin;
  while (end < text.size() && in_number(text[end])) ++end;
  while (!digit(text[end - 1])) --end;
  while (!digit(text[begin]) && !(text[begin] == '.' && digit(text[begin + 1]))) ++begin;
  // A sign belongs to the number unless it joins two of them.
  size_t before = begin;
  while (before > 0 && text[before - 1] == '$') --before;
  const bool minus = before > 0 && text[before - 1] == '-' &&
                     !(before > 1 && (digit(text[before - 2]) || text[before - 2] == ')'));
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
