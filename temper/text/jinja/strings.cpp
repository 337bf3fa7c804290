#include "temper/text/jinja/strings.h"

#include <string.h>

#include <algorithm>
#include <cstdlib>

#include "temper/base/error.h"
#include "temper/text/jinja/runtime.h"
#include "temper/text/jinja/unicode.h"

namespace temper::jinja {
namespace {
bool is_cased(char32_t c) { return is_upper(c) || is_lower(c); }

// Digits with single underscores between them, which are removed; false when not so.
bool remove_underscores(std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
    } else if (i == 0 || i + 1 == text.size() ||
               !isalnum(static_cast<unsigned char>(text[i - 1])) ||
               !isalnum(static_cast<unsigned char>(text[i + 1]))) {
      return false;
    }
  }
  text = std::move(out);
  return true;
}

std::vector<std::string> split_at_space(std::string_view text, int64_t max, bool from_right) {
  std::vector<std::string> parts;
  const auto more = [&] { return max < 0 || static_cast<int64_t>(parts.size()) < max; };
  if (from_right) {
    for (text = strip_right(text); !text.empty(); text = strip_right(text)) {
      size_t start = text.size();
      while (more() && start > 0) {
        size_t before = start - 1;
        while (before > 0 && (static_cast<unsigned char>(text[before]) & 0xc0) == 0x80) --before;
        size_t i = before;
        if (is_space(next_code_point(text, i))) break;
        start = before;
      }
      if (!more()) {
        parts.emplace_back(text);
        break;
      }
      parts.emplace_back(text.substr(start));
      text = text.substr(0, start);
    }
    std::reverse(parts.begin(), parts.end());
    return parts;
  }
  for (text = strip_left(text); !text.empty(); text = strip_left(text)) {
    if (!more()) {
      parts.emplace_back(text);
      break;
    }
    size_t end = 0;
    while (end < text.size()) {
      size_t next = end;
      if (is_space(next_code_point(text, next))) break;
      end = next;
    }
    parts.emplace_back(text.substr(0, end));
    text = text.substr(end);
  }
  return parts;
}
}  // namespace

size_t find_text(std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) return std::string::npos;
  if (part.empty()) return from;
  const void* found = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  return found ? static_cast<size_t>(static_cast<const char*>(found) - text.data())
               : std::string::npos;
}

Value escaped(const Value& value) {
  if (value.is_markup()) return value;
  std::string out;
  for (const char c : to_text(value)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return Value(std::move(out), true);
}

std::string replace_text(Runtime& runtime, const std::string& text, const std::string& old,
                         const std::string& with, int64_t count) {
  std::vector<size_t> places;
  const auto wanted = [&] { return count < 0 || static_cast<int64_t>(places.size()) < count; };
  if (old.empty()) {  // before each character and at the end
    for (size_t i = 0; wanted();) {
      places.push_back(i);
      if (i >= text.size()) break;
      next_code_point(text, i);
    }
  } else {
    for (size_t i = find_text(text, old); i != std::string::npos && wanted();
         i = find_text(text, old, i + old.size())) {
      places.push_back(i);
    }
  }
  runtime.charge(places.size(), text.size());
  for (size_t i = 0; i < places.size() && !with.empty(); ++i) runtime.charge(0, with.size());
  std::string out;
  size_t from = 0;
  for (const size_t place : places) {
    out.append(text, from, place - from);
    out += with;
    from = place + old.size();
  }
  return out.append(text, from);
}

std::string strip_text(std::string_view text, const std::optional<std::string>& chars, bool left,
                       bool right) {
  if (!chars) {
    if (left) text = strip_left(text);
    return std::string(right ? strip_right(text) : text);
  }
  const auto set = characters(*chars);
  const auto in_set = [&](std::string_view c) {
    return std::find(set.begin(), set.end(), c) != set.end();
  };
  const auto all = characters(text);
  size_t from = 0, to = all.size();
  while (left && from < to && in_set(all[from])) ++from;
  while (right && to > from && in_set(all[to - 1])) --to;
  if (from == to) return {};
  const char* begin = all[from].data();
  return std::string(begin, all[to - 1].data() + all[to - 1].size());
}

std::vector<std::string> split_text(std::string_view text,
                                    const std::optional<std::string>& separator, int64_t max,
                                    bool from_right) {
  if (!separator) return split_at_space(text, max, from_right);
  if (separator->empty()) throw Failure("empty separator");
  std::vector<std::string> parts;
  const auto more = [&] { return max < 0 || static_cast<int64_t>(parts.size()) < max; };
  if (from_right) {
    // Overlapping separators count from the right, so the text is searched backwards.
    size_t place;
    while (more() && (place = text.rfind(*separator)) != std::string_view::npos) {
      parts.emplace_back(text.substr(place + separator->size()));
      text = text.substr(0, place);
    }
    parts.emplace_back(text);
    std::reverse(parts.begin(), parts.end());
    return parts;
  }
  size_t from = 0, place;
  while (more() && (place = find_text(text, *separator, from)) != std::string::npos) {
    parts.emplace_back(text.substr(from, place - from));
    from = place + separator->size();
  }
  parts.emplace_back(text.substr(from));
  return parts;
}

std::string capitalize(std::string_view text) {
  if (text.empty()) return {};
  size_t first = 0;
  next_code_point(text, first);
  return to_title_case(text.substr(0, first)) + to_lower(text.substr(first));
}

std::string title_words(std::string_view text) {
  std::string out;
  bool inside = false;
  for (const std::string_view c : characters(text)) {
    size_t i = 0;
    out += inside ? to_lower(c) : to_title_case(c);
    inside = is_cased(next_code_point(c, i));
  }
  return out;
}

std::optional<int64_t> parse_integer(std::string_view text, int64_t base) {
  if (base != 0 && (base < 2 || base > 36)) return std::nullopt;
  std::string digits(strip_left(strip_right(text)));
  bool negative = false;
  if (!digits.empty() && (digits[0] == '-' || digits[0] == '+')) {
    negative = digits[0] == '-';
    digits.erase(0, 1);
  }
  if (digits.size() > 2 && digits[0] == '0') {
    const char mark = static_cast<char>(digits[1] | 0x20);
    const int64_t implied = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (implied && (base == 0 || base == implied)) {
      base = implied;
      digits.erase(0, digits[2] == '_' ? 3 : 2);
    }
  }
  if (!remove_underscores(digits) || digits.empty()) return std::nullopt;
  if (base == 0) {
    if (digits[0] == '0' && digits.find_first_not_of('0') != std::string::npos) return std::nullopt;
    base = 10;
  }
  int64_t value = 0;
  for (const char c : digits) {
    const int64_t d = c >= '0' && c <= '9'                     ? c - '0'
                      : (c | 0x20) >= 'a' && (c | 0x20) <= 'z' ? (c | 0x20) - 'a' + 10
                                                               : 99;
    if (d >= base) return std::nullopt;
    if (__builtin_mul_overflow(value, base, &value) || __builtin_sub_overflow(value, d, &value)) {
      throw Failure("integer beyond 64 bits");
    }
  }
  if (!negative && __builtin_sub_overflow(int64_t{0}, value, &value))
    throw Failure("integer beyond 64 bits");
  return value;
}

std::optional<double> parse_real(std::string_view text) {
  std::string digits = to_lower(strip_left(strip_right(text)));
  if (!remove_underscores(digits)) return std::nullopt;
  const size_t sign = !digits.empty() && (digits[0] == '-' || digits[0] == '+');
  const std::string rest = digits.substr(sign);
  const bool named = rest == "inf" || rest == "infinity" || rest == "nan";
  if (rest.empty() || (!named && rest.find_first_not_of("0123456789.e+-") != std::string::npos))
    return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(digits.c_str(), &end);
  if (*end != '\0') return std::nullopt;
  return value;
}

std::string pad(Runtime& runtime, const std::string& text, int64_t width, const std::string& fill,
                Side text_side) {
  const auto length = static_cast<int64_t>(count_code_points(text));
  if (width <= length) return text;
  const auto missing = static_cast<size_t>(width - length);
  runtime.charge(missing / 16 + 1, missing);
  // str.center puts the odd one left when the width is odd, else right.
  const size_t left = text_side == Side::kLeft ? 0
                      : text_side == Side::kRight
                          ? missing
                          : missing / 2 + (missing & static_cast<size_t>(width) & 1);
  std::string out;
  for (size_t i = 0; i < left; ++i) out += fill;
  out += text;
  for (size_t i = left; i < missing; ++i) out += fill;
  return out;
}

}  // namespace temper::jinja
