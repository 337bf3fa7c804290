#include "temper/grammar/json_pattern.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "temper/base/error.h"
#include "temper/text/unicode.h"

namespace temper::grammar {
namespace {

using Point = char32_t;
constexpr Point kLastPoint = 0x10FFFF;

using Ranges = std::vector<std::pair<Point, Point>>;  // ranges of code points, both ends included

// Sorted ranges that do not touch.
class Points {
 public:
  Points() = default;
  Points(std::initializer_list<std::pair<Point, Point>> ranges) : Points(of(ranges)) {}
  static Points of(Ranges ranges) {
    std::sort(ranges.begin(), ranges.end());
    Points joined;
    for (const auto& [a, b] : ranges)
      if (!joined.empty() && a <= joined.ranges_.back().second + 1)
        joined.ranges_.back().second = std::max(joined.ranges_.back().second, b);
      else
        joined.ranges_.emplace_back(a, b);
    return joined;
  }
  Points complement() const {
    Points out;
    Point next = 0;
    for (const auto& [a, b] : ranges_) {
      if (a > next) out.ranges_.emplace_back(next, a - 1);
      next = b + 1;
    }
    if (next <= kLastPoint) out.ranges_.emplace_back(next, kLastPoint);
    return out;
  }
  Points without(const Points& other) const {
    Ranges rest = complement().ranges_;
    rest.insert(rest.end(), other.ranges_.begin(), other.ranges_.end());
    return of(std::move(rest)).complement();
  }
  bool has(Point p) const {
    return std::any_of(ranges_.begin(), ranges_.end(),
                       [&](const auto& r) { return r.first <= p && p <= r.second; });
  }
  bool empty() const { return ranges_.empty(); }
  const Ranges& ranges() const { return ranges_; }

 private:
  Ranges ranges_;
};

// Characters that never occur unescaped in a JSON string. (Surrogates occur in no text.)
const Points& escaped() {
  static const Points points{{0, 0x1F}, {'"', '"'}, {'\\', '\\'}, {0xD800, 0xDFFF}};
  return points;
}
const Points kDigits{{'0', '9'}};
const Points kWordCharacters{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const Points kSpaces{{'\t', '\r'}, {' ', ' '}, {0xA0, 0xA0}};
const Points kLineEnds{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

std::string hex(Point value, int digits) {
  std::string out;
  for (int i = digits - 1; i >= 0; --i) out += "0123456789abcdef"[value >> (4 * i) & 15u];
  return out;
}

// One character as a literal of an expression.
std::string literal(Point p) {
  if (p < 0x80 && std::isalnum(static_cast<int>(p))) return {static_cast<char>(p)};
  return "\\u{" + hex(p, 6) + "}";
}

// The escape that JSON writes, as an expression.
std::string escape(Point p) {
  static constexpr std::pair<Point, char> kShort[] = {
      {'"', '"'}, {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'}, {'\n', 'n'}, {'\r', 'r'}, {'\t', 't'}};
  for (const auto& [point, letter] : kShort)
    if (p == point) return "\\\\" + literal(static_cast<Point>(letter));
  return "\\\\u" + hex(p, 4);
}

// An expression for one character of a JSON string; empty: no character is possible.
std::string choice_of(const Points& points) {
  std::vector<std::string> choices;
  const Points plain = points.without(escaped());
  for (auto [first, last] : plain.ranges()) {
    if (first == '^' && first < last) choices.push_back(literal(first++));  // no class begins so
    choices.push_back(first == last ? literal(first)
                                    : "[" + literal(first) + "-" + literal(last) + "]");
  }
  for (const auto& [first, last] : escaped().ranges())
    for (Point p = first; p <= last && p < 0x80; ++p)
      if (points.has(p)) choices.push_back(escape(p));
  std::string out;
  for (const std::string& choice : choices) out += (out.empty() ? "(?:" : "|") + choice;
  return out.empty() ? out : out + ")";
}

class Translator {
 public:
  Translator(std::string_view pattern, const std::string& where)
      : pattern_(pattern), where_(where) {}

  std::string translated() {
    while (at_ < pattern_.size()) {
      const size_t begin = at_;
      const bool anchor =
          (begin == 0 && at() == '^') || (at() == '$' && begin + 1 == pattern_.size());
      const std::optional<Points> points = element();
      if (anchor) continue;  // all of a string is matched anyway
      const std::string_view written = pattern_.substr(begin, at_ - begin);
      if (!points || points->without(escaped()).ranges() == points->ranges()) {
        out_ += written;
        continue;
      }
      const std::string in_json = choice_of(*points);
      check<ConfigError>(!in_json.empty(), where_, ": `", written,
                         "` in a pattern matches no character of a JSON text");
      out_ += in_json;
    }
    return out_;
  }

 private:
  char at(size_t ahead = 0) const {
    return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0';
  }

  Point character() { return next_char(pattern_, at_); }

  // Reads one element. Returns the characters it matches, if it is one character of a set.
  std::optional<Points> element() {
    switch (at()) {
      case '[':
        return character_class();
      case '\\':
        return escape_sequence(false);
      case '.':
        ++at_;
        return kLineEnds.complement();
      case '{': {
        const size_t close = pattern_.find('}', at_);
        at_ = close == std::string_view::npos ? pattern_.size() : close + 1;
        return {};
      }
      case '(':
        ++at_;
        if (at() != '?') return {};
        at_ += at(1) == '<' ? 3 : 2;  // (?: and (?<name>, whose letters stay
        at_ = std::min(at_, pattern_.size());
        return {};
      case ')':
      case '*':
      case '+':
      case '?':
      case '|':
      case '^':
      case '$':
        ++at_;
        return {};
      default: {
        const Point p = character();
        return Points{{p, p}};
      }
    }
  }

  // \d, \n, \x41, \u0041, \u{41}, \cA, \/; nullopt: no set of characters (\b, \1, \p).
  std::optional<Points> escape_sequence(bool in_class) {
    ++at_;
    if (at_ >= pattern_.size()) return {};
    const char c = at();
    const Points* named = c == 'd' || c == 'D'   ? &kDigits
                          : c == 'w' || c == 'W' ? &kWordCharacters
                          : c == 's' || c == 'S' ? &kSpaces
                                                 : nullptr;
    if (named) {
      ++at_;
      return std::isupper(static_cast<unsigned char>(c)) ? named->complement() : *named;
    }
    if (!in_class &&
        (std::string_view("bBpPk").find(c) != std::string_view::npos || (c >= '1' && c <= '9'))) {
      ++at_;
      return {};
    }
    const Point p = escaped_character();
    return Points{{p, p}};
  }

  Point escaped_character() {
    static constexpr std::pair<char, Point> kControls[] = {{'n', '\n'}, {'r', '\r'}, {'t', '\t'},
                                                           {'f', '\f'}, {'v', '\v'}, {'0', 0},
                                                           {'a', '\a'}, {'b', '\b'}, {'e', 0x1B}};
    const char c = at();
    for (const auto& [letter, point] : kControls)
      if (c == letter) {
        ++at_;
        return point;
      }
    if (c == 'c' && std::isalpha(static_cast<unsigned char>(at(1)))) {
      at_ += 2;
      return static_cast<Point>(pattern_[at_ - 1]) % 32;
    }
    if (c == 'u' && at(1) == '{') {
      at_ += 2;
      const Point p = hex_digits(6);
      if (at() == '}') ++at_;
      return p;
    }
    if (c == 'x' || c == 'u' || c == 'U') {
      ++at_;
      return hex_digits(c == 'x' ? 2 : c == 'u' ? 4 : 8);
    }
    return character();
  }

  Point hex_digits(int most) {
    Point p = 0;
    for (int i = 0; i < most && std::isxdigit(static_cast<unsigned char>(at())); ++i, ++at_) {
      const char c = static_cast<char>(std::tolower(at()));
      p = p * 16 + static_cast<Point>(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return std::min(p, kLastPoint);
  }

  std::optional<Points> character_class() {
    ++at_;
    const bool negated = at() == '^';
    if (negated) ++at_;
    Ranges members;
    while (at_ < pattern_.size() && at() != ']') {
      const std::optional<Points> first = member();
      if (!first) return {};
      const bool single =
          first->ranges().size() == 1 && first->ranges()[0].first == first->ranges()[0].second;
      if (single && at() == '-' && at(1) != ']' && at(1) != '\0') {
        ++at_;
        const std::optional<Points> last = member();
        if (!last) return {};
        const Point a = first->ranges()[0].first, b = last->ranges()[0].second;
        if (a > b) return {};
        members.emplace_back(a, b);
        continue;
      }
      members.insert(members.end(), first->ranges().begin(), first->ranges().end());
    }
    if (at_ < pattern_.size()) ++at_;
    const Points points = Points::of(std::move(members));
    return negated ? points.complement() : points;
  }
  std::optional<Points> member() {
    if (at() == '\\') return escape_sequence(true);
    const Point p = character();
    return Points{{p, p}};
  }

  const std::string_view pattern_;
  const std::string& where_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

std::string json_pattern(std::string_view pattern, const std::string& where) {
  // XGrammar compiles an expression of ASCII alone to an automaton, which drops every alternative
  // with a backslash and, in XGrammar 0.2.8, also the dot of (\.[0-9]{1,9})?. A character beyond
  // ASCII, repeated zero times, makes it compile the expression to rules.
  return "\u00e9{0}(?:" + Translator(pattern, where).translated() + ")";
}

// In a grammar blanks, ends of lines and comments may stand between the brace, numbers and comma.
// Both tables keep the time linear, however many braces a comment has.
int64_t num_large_repeats(std::string_view text) {
  constexpr int64_t kLarge = 32;
  const size_t size = text.size();
  std::vector<size_t> shown(size + 1, size);  // what follows blanks and comments from here
  for (size_t at = size, line = size; at-- > 0;) {
    const char c = text[at];
    if (c == '\n' || c == '\r') line = at;
    const bool blank = c == ' ' || c == '\t' || c == '\n' || c == '\r';
    shown[at] = blank ? shown[at + 1] : c == '#' ? shown[line] : at;
  }
  size_t read = size;  // where the last range began: braces of one comment share what follows it
  bool is_large = false;
  const auto large_range = [&](size_t at) {
    int64_t largest = 0, number = 0;
    for (; at < size; at = shown[at + 1]) {
      const char c = text[at];
      if (c >= '0' && c <= '9')
        number = std::min(10 * number + (c - '0'), kLarge);
      else if (c == ',')
        number = 0;
      else if (c != '+' && c != '-')
        break;
      largest = std::max(largest, number);
    }
    return at < size && text[at] == '}' && largest >= kLarge;
  };
  int64_t found = 0;
  for (size_t at = 0; (at = text.find('{', at)) != text.npos; ++at) {
    const size_t begin = shown[at + 1];
    if (begin != read) is_large = large_range(begin);
    read = begin;
    found += is_large;
  }
  return found;
}

}  // namespace temper::grammar
