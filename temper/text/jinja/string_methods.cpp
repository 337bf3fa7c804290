// The methods of str that templates call.
#include <algorithm>
#include <map>

#include "temper/base/error.h"
#include "temper/text/jinja/format/format.h"
#include "temper/text/jinja/methods.h"
#include "temper/text/jinja/runtime.h"
#include "temper/text/jinja/sequences.h"
#include "temper/text/jinja/strings.h"
#include "temper/text/jinja/unicode.h"

namespace temper::jinja {
namespace {
using Method = Value (*)(Runtime&, const Value& self, Arguments);

std::optional<std::string> optional_text(const Bound& bound, size_t i) {
  if (!bound.has(i) || bound[i].is_none()) return std::nullopt;
  return bound.text(i, "");
}

Value make_strings(std::vector<std::string> parts) {
  Values values;
  for (std::string& part : parts) values.emplace_back(std::move(part));
  return make_list(std::move(values));
}

// The part of a string that optional start and end arguments (code points, as in a slice) leave;
// nothing when the start lies beyond the end of the string.
struct Window {
  std::string_view text;
  size_t begin = 0;  // number of code points before `text`
};
std::optional<Window> window(const std::string& text, const Bound& bound, size_t start_at,
                             size_t end_at) {
  const auto n = static_cast<int64_t>(count_code_points(text));
  const auto index = [&](size_t i, int64_t fallback) {
    if (!bound.has(i) || bound[i].is_none()) return fallback;
    const int64_t k = bound.integer(i, 0);
    return k < 0 ? std::max<int64_t>(k < -n ? 0 : k + n, 0) : k;
  };
  const int64_t start = index(start_at, 0), end = std::min(index(end_at, n), n);
  if (start > n || end < start) return std::nullopt;
  const size_t from = byte_of_code_point(text, static_cast<size_t>(start));
  const size_t to = byte_of_code_point(text, static_cast<size_t>(end));
  return Window{std::string_view(text).substr(from, to - from), static_cast<size_t>(start)};
}

template <bool left, bool right>
Value strip(Runtime& runtime, const Value& self, Arguments arguments) {
  const Bound bound("strip", std::move(arguments), {"chars"});
  const auto chars = optional_text(bound, 0);
  if (chars) runtime.charge(self.text().size() * chars->size() / 16);
  return strip_text(self.text(), chars, left, right);
}

template <bool from_right>
Value split(Runtime& runtime, const Value& self, Arguments arguments) {
  const Bound bound("split", std::move(arguments), {"sep", "maxsplit"});
  const auto separator = optional_text(bound, 0);
  if (from_right && separator) runtime.charge(self.text().size() * separator->size() / 64);
  auto parts = split_text(self.text(), separator, bound.integer(1, -1), from_right);
  runtime.charge(parts.size(), parts.size() * 64);
  return make_strings(std::move(parts));
}

Value splitlines(Runtime& runtime, const Value& self, Arguments arguments) {
  const Bound bound("splitlines", std::move(arguments), {"keepends"});
  const auto lines = split_lines(self.text(), bound.flag(0, false));
  runtime.charge(lines.size(), lines.size() * 64);
  return make_strings({lines.begin(), lines.end()});
}

template <bool at_start>
Value starts_or_ends(Runtime& runtime, const Value& self, Arguments arguments) {
  const char* const name = at_start ? "startswith" : "endswith";
  const Bound bound(name, std::move(arguments), {"prefix", "start", "end"}, 1);
  const auto part = window(self.text(), bound, 1, 2);
  const auto matches = [&](const Value& affix) {
    if (!affix.is_string()) throw Failure(str(name, " takes strings, not ", type_name(affix)));
    return part &&
           (at_start ? part->text.starts_with(affix.text()) : part->text.ends_with(affix.text()));
  };
  if (!bound[0].is<Tuple>()) return matches(bound[0]);
  const Values& affixes = *bound[0].elements();
  runtime.charge(affixes.size());
  return std::any_of(affixes.begin(), affixes.end(), matches);
}

// find, rfind, index and rindex: the code point where the part begins.
template <bool from_right, bool required>
Value find(Runtime& runtime, const Value& self, Arguments arguments) {
  const Bound bound("find", std::move(arguments), {"sub", "start", "end"}, 1);
  const std::string part = bound.text(0, "");
  const auto in = window(self.text(), bound, 1, 2);
  if (from_right) runtime.charge(self.text().size() * part.size() / 64);
  const size_t found = !in          ? std::string::npos
                       : from_right ? in->text.rfind(part)
                                    : find_text(in->text, part);
  if (found == std::string::npos) {
    if (required) throw Failure("substring not found");
    return -1;
  }
  return static_cast<int64_t>(in->begin + count_code_points(in->text.substr(0, found)));
}

Value count(Runtime& runtime, const Value& self, Arguments arguments) {
  const Bound bound("count", std::move(arguments), {"sub", "start", "end"}, 1);
  const std::string part = bound.text(0, "");
  const auto in = window(self.text(), bound, 1, 2);
  if (!in) return 0;
  if (part.empty()) return static_cast<int64_t>(count_code_points(in->text) + 1);
  int64_t n = 0;
  for (size_t i = find_text(in->text, part); i != std::string::npos;
       i = find_text(in->text, part, i + part.size()))
    ++n;
  runtime.charge(static_cast<size_t>(n));
  return n;
}

Value replace(Runtime& runtime, const Value& self, Arguments arguments) {
  const Bound bound("replace", std::move(arguments), {"old", "new", "count"}, 2);
  return replace_text(runtime, self.text(), bound.text(0, ""), bound.text(1, ""),
                      bound.integer(2, -1));
}

Value join(Runtime& runtime, const Value& self, Arguments arguments) {
  const Bound bound("join", std::move(arguments), {"iterable"}, 1);
  std::string out;
  const Values items = runtime.items_of(bound[0]);
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is_string())
      throw Failure(
          str("sequence item ", i, ": expected str instance, ", type_name(items[i]), " found"));
    const std::string text = self.is_markup() ? escaped(items[i]).text() : items[i].text();
    runtime.charge(0, text.size() + self.text().size());
    if (i) out += self.text();
    out += text;
  }
  return out;
}

Value format(Runtime& runtime, const Value& self, Arguments arguments) {
  return format_braces(runtime, self, arguments);
}

Value format_map(Runtime& runtime, const Value& self, Arguments arguments) {
  const Bound bound("format_map", std::move(arguments), {"mapping"}, 1);
  const auto* dict = bound[0].get_if<Dict>();
  if (!dict) throw Failure("format_map() takes a mapping");
  Arguments named;
  for (const auto& [key, value] : dict->data->pairs) {
    if (key.is_string()) named.named.emplace_back(key.text(), value);
  }
  return format_braces(runtime, self, named);
}

template <std::string (*change)(std::string_view)>
Value changed(Runtime&, const Value& self, Arguments arguments) {
  Bound("str method", std::move(arguments), {});
  return change(self.text());
}

std::string swap_case(std::string_view text) {
  std::string out;
  for (const std::string_view c : characters(text)) {
    size_t i = 0;
    out += is_upper(next_code_point(c, i)) ? to_lower(c) : to_upper(c);
  }
  return out;
}

// True for a text that is not empty and whose characters all satisfy `is`.
template <bool (*is)(char32_t)>
Value all(Runtime&, const Value& self, Arguments arguments) {
  Bound("str method", std::move(arguments), {});
  const std::string& text = self.text();
  for (size_t i = 0; i < text.size();) {
    if (!is(next_code_point(text, i))) return false;
  }
  return !text.empty();
}
bool is_alphanumeric(char32_t c) { return is_alpha(c) || is_numeric(c); }

template <bool upper>
Value is_case_method(Runtime&, const Value& self, Arguments arguments) {
  Bound("str method", std::move(arguments), {});
  return has_case(self.text(), upper);
}

Value is_ascii(Runtime&, const Value& self, Arguments arguments) {
  Bound("isascii", std::move(arguments), {});
  return std::all_of(self.text().begin(), self.text().end(),
                     [](char c) { return static_cast<signed char>(c) >= 0; });
}

template <Side side>
Value justify(Runtime& runtime, const Value& self, Arguments arguments) {
  const Bound bound("justify", std::move(arguments), {"width", "fillchar"}, 1);
  const std::string fill = bound.text(1, " ");
  if (count_code_points(fill) != 1)
    throw Failure("The fill character must be exactly one character long");
  return pad(runtime, self.text(), bound.integer(0, 0), fill, side);
}

Value zfill(Runtime& runtime, const Value& self, Arguments arguments) {
  const Bound bound("zfill", std::move(arguments), {"width"}, 1);
  const std::string& text = self.text();
  const size_t sign = !text.empty() && (text[0] == '-' || text[0] == '+');
  const int64_t width = std::max(bound.integer(0, 0), int64_t{0}) - static_cast<int64_t>(sign);
  return text.substr(0, sign) + pad(runtime, text.substr(sign), width, "0", Side::kRight);
}

template <bool from_right>
Value partition(Runtime& runtime, const Value& self, Arguments arguments) {
  const Bound bound("partition", std::move(arguments), {"sep"}, 1);
  const std::string separator = bound.text(0, "");
  if (separator.empty()) throw Failure("empty separator");
  const std::string& text = self.text();
  if (from_right) runtime.charge(text.size() * separator.size() / 64);
  const size_t at = from_right ? text.rfind(separator) : find_text(text, separator);
  if (at == std::string::npos) {
    return from_right ? make_tuple({Value(""), Value(""), Value(text)})
                      : make_tuple({Value(text), Value(""), Value("")});
  }
  return make_tuple(
      {Value(text.substr(0, at)), Value(separator), Value(text.substr(at + separator.size()))});
}

template <bool prefix>
Value remove_affix(Runtime&, const Value& self, Arguments arguments) {
  const Bound bound("removeprefix", std::move(arguments), {"affix"}, 1);
  const std::string affix = bound.text(0, ""), &text = self.text();
  if (prefix) return text.starts_with(affix) ? text.substr(affix.size()) : text;
  return text.ends_with(affix) ? text.substr(0, text.size() - affix.size()) : text;
}

// kMarkup: the method's result on Markup is Markup too, and text arguments are escaped.
enum class Keeps { kNothing, kMarkup };
struct Entry {
  Method method;
  Keeps keeps;
};

const std::map<std::string, Entry, std::less<>>& table() {
  static const std::map<std::string, Entry, std::less<>> methods = {
      {"strip", {strip<true, true>, Keeps::kMarkup}},
      {"lstrip", {strip<true, false>, Keeps::kMarkup}},
      {"rstrip", {strip<false, true>, Keeps::kMarkup}},
      {"split", {split<false>, Keeps::kMarkup}},
      {"rsplit", {split<true>, Keeps::kMarkup}},
      {"splitlines", {splitlines, Keeps::kMarkup}},
      {"startswith", {starts_or_ends<true>, Keeps::kNothing}},
      {"endswith", {starts_or_ends<false>, Keeps::kNothing}},
      {"find", {find<false, false>, Keeps::kNothing}},
      {"rfind", {find<true, false>, Keeps::kNothing}},
      {"index", {find<false, true>, Keeps::kNothing}},
      {"rindex", {find<true, true>, Keeps::kNothing}},
      {"count", {count, Keeps::kNothing}},
      {"replace", {replace, Keeps::kMarkup}},
      {"join", {join, Keeps::kMarkup}},
      {"format", {format, Keeps::kNothing}},
      {"format_map", {format_map, Keeps::kNothing}},
      {"upper", {changed<to_upper>, Keeps::kMarkup}},
      {"lower", {changed<to_lower>, Keeps::kMarkup}},
      {"casefold", {changed<to_lower>, Keeps::kMarkup}},
      {"title", {changed<title_words>, Keeps::kMarkup}},
      {"capitalize", {changed<capitalize>, Keeps::kMarkup}},
      {"swapcase", {changed<swap_case>, Keeps::kMarkup}},
      {"isspace", {all<is_space>, Keeps::kNothing}},
      {"isalpha", {all<is_alpha>, Keeps::kNothing}},
      {"isdigit", {all<is_digit>, Keeps::kNothing}},
      {"isdecimal", {all<is_digit>, Keeps::kNothing}},
      {"isnumeric", {all<is_numeric>, Keeps::kNothing}},
      {"isalnum", {all<is_alphanumeric>, Keeps::kNothing}},
      {"isupper", {is_case_method<true>, Keeps::kNothing}},
      {"islower", {is_case_method<false>, Keeps::kNothing}},
      {"isascii", {is_ascii, Keeps::kNothing}},
      {"ljust", {justify<Side::kLeft>, Keeps::kMarkup}},
      {"rjust", {justify<Side::kRight>, Keeps::kMarkup}},
      {"center", {justify<Side::kBoth>, Keeps::kMarkup}},
      {"zfill", {zfill, Keeps::kMarkup}},
      {"partition", {partition<false>, Keeps::kMarkup}},
      {"rpartition", {partition<true>, Keeps::kMarkup}},
      {"removeprefix", {remove_affix<true>, Keeps::kMarkup}},
      {"removesuffix", {remove_affix<false>, Keeps::kMarkup}},
  };
  return methods;
}

Value marked(const Value& value) {
  if (value.is_string()) return Value(value.text(), true);
  if (!value.elements()) return value;
  Values items;
  for (const Value& item : *value.elements()) items.push_back(marked(item));
  return value.is<List>() ? make_list(std::move(items)) : make_tuple(std::move(items));
}
}  // namespace

std::optional<Value> find_string_method(const Value& self, const std::string& name) {
  const auto found = table().find(name);
  if (found == table().end()) return std::nullopt;
  const Entry entry = found->second;
  auto body = [self, entry, name](Runtime& runtime, Arguments arguments) {
    runtime.charge(1 + length_cost(self));
    if (!self.is_markup() || entry.keeps == Keeps::kNothing)
      return entry.method(runtime, self, std::move(arguments));
    if (name == "replace") {
      for (Value& argument : arguments.positional) {
        if (argument.is_string()) argument = escaped(argument);
      }
    }
    return marked(entry.method(runtime, self, std::move(arguments)));
  };
  return Value(std::make_shared<Function>(name, std::move(body), self));
}

bool has_case(std::string_view text, bool upper) {
  bool any = false;
  for (size_t i = 0; i < text.size();) {
    const char32_t c = next_code_point(text, i);
    if (upper ? is_lower(c) : is_upper(c)) return false;
    any = any || (upper ? is_upper(c) : is_lower(c));
  }
  return any;
}

}  // namespace temper::jinja
