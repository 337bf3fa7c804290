#include <algorithm>

#include "temper/base/error.h"
#include "temper/text/jinja/filters/filter_functions.h"
#include "temper/text/jinja/format/format.h"
#include "temper/text/jinja/runtime.h"
#include "temper/text/jinja/strings.h"
#include "temper/text/jinja/unicode.h"

namespace temper::jinja::filters {
namespace {
// markupsafe.soft_str: str(), but Markup stays Markup.
Value soft_text(Runtime& runtime, const Value& value) {
  return value.is_string() ? value : Value(runtime.text(value));
}

Value changed(Runtime& runtime, const Value& input, Arguments arguments, const char* name,
              std::string (*change)(std::string_view)) {
  Bound(name, std::move(arguments), {});
  const Value text = soft_text(runtime, input);
  return Value(change(text.text()), text.is_markup());
}

// The filter's own idea of words: what stands between - ( { [ < and white space.
std::string title_filter(std::string_view text) {
  std::string out;
  bool inside = false;
  for (const std::string_view c : characters(text)) {
    size_t i = 0;
    const char32_t code = next_code_point(c, i);
    const bool separates =
        is_space(code) || code == '-' || code == '(' || code == '{' || code == '[' || code == '<';
    out += separates ? std::string(c) : inside ? to_lower(c) : to_upper(c);
    inside = !separates;
  }
  return out;
}

std::string url_quoted(const std::string& text, bool for_query) {
  static const char* const hex = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80 && (isalnum(byte) || c == '_' || c == '.' || c == '-' || c == '~' ||
                        (c == '/' && !for_query))) {
      out += c;
    } else if (c == ' ' && for_query) {
      out += '+';
    } else {
      (out += '%') += hex[byte >> 4];
      out += hex[byte & 15];
    }
  }
  return out;
}
}  // namespace

Value upper(Runtime& runtime, Value input, Arguments arguments) {
  return changed(runtime, input, std::move(arguments), "upper", to_upper);
}
Value lower(Runtime& runtime, Value input, Arguments arguments) {
  return changed(runtime, input, std::move(arguments), "lower", to_lower);
}
Value capitalize(Runtime& runtime, Value input, Arguments arguments) {
  return changed(runtime, input, std::move(arguments), "capitalize", jinja::capitalize);
}
Value title(Runtime& runtime, Value input, Arguments arguments) {
  return changed(runtime, input, std::move(arguments), "title", title_filter);
}

Value trim(Runtime& runtime, Value input, Arguments arguments) {
  const Bound bound("trim", std::move(arguments), {"chars"});
  const Value text = soft_text(runtime, input);
  std::optional<std::string> chars;
  if (bound.has(0) && !bound[0].is_none()) chars = bound.text(0, "");
  if (chars) runtime.charge(text.text().size() * chars->size() / 16);
  return Value(strip_text(text.text(), chars, true, true), text.is_markup());
}

Value replace(Runtime& runtime, Value input, Arguments arguments) {
  const Bound bound("replace", std::move(arguments), {"old", "new", "count"}, 2);
  const int64_t count = bound.has(2) && !bound[2].is_none() ? bound.integer(2, -1) : -1;
  return replace_text(runtime, runtime.text(input), runtime.text(bound[0]), runtime.text(bound[1]),
                      count);
}

Value indent(Runtime& runtime, Value input, Arguments arguments) {
  const Bound bound("indent", std::move(arguments), {"width", "first", "blank"});
  if (input.is_undefined()) throw Failure(*input.get_if<Undefined>()->message);
  if (!input.is_string()) throw Failure("indent takes a string, not " + type_name(input));
  std::string indentation;
  if (bound.has(0) && bound[0].is_string()) {
    indentation = bound[0].text();
  } else {
    indentation = pad(runtime, "", std::max(bound.integer(0, 4), int64_t{0}), " ", Side::kLeft);
  }
  const std::string text = input.text() + "\n";
  const bool blank = bound.flag(2, false);
  std::string out = bound.flag(1, false) ? indentation : "";
  bool first_line = true;
  for (const std::string_view line : split_lines(text)) {
    if (!first_line) {
      runtime.charge(1, indentation.size());
      out += '\n';
      if (blank || !line.empty()) out += indentation;
    }
    out += line;
    first_line = false;
  }
  return Value(std::move(out), input.is_markup());
}

Value center(Runtime& runtime, Value input, Arguments arguments) {
  const Bound bound("center", std::move(arguments), {"width"});
  const Value text = soft_text(runtime, input);
  return Value(pad(runtime, text.text(), bound.integer(0, 80), " ", Side::kBoth), text.is_markup());
}

Value truncate(Runtime&, Value input, Arguments arguments) {
  const Bound bound("truncate", std::move(arguments), {"length", "killwords", "end", "leeway"});
  if (!input.is_string()) throw Failure("truncate takes a string, not " + type_name(input));
  const std::string end = bound.text(2, "...");
  const auto end_length = static_cast<int64_t>(count_code_points(end));
  const int64_t length = bound.integer(0, 255);
  const int64_t leeway = bound.has(3) && !bound[3].is_none() ? bound.integer(3, 5) : 5;
  if (length < end_length) throw Failure(str("expected length >= ", end_length, ", got ", length));
  if (leeway < 0) throw Failure(str("expected leeway >= 0, got ", leeway));
  const auto size = static_cast<int64_t>(count_code_points(input.text()));
  if (size <= length || size - length <= leeway) return input;
  std::string kept = input.text().substr(
      0, byte_of_code_point(input.text(), static_cast<size_t>(length - end_length)));
  if (!bound.flag(1, false)) kept = kept.substr(0, kept.rfind(' '));
  return kept + end;
}

Value word_count(Runtime& runtime, Value input, Arguments arguments) {
  Bound("wordcount", std::move(arguments), {});
  const std::string text = runtime.text(input);
  int64_t words = 0;
  bool inside = false;
  for (size_t i = 0; i < text.size();) {
    const bool word = is_word(next_code_point(text, i));
    words += word && !inside;
    inside = word;
  }
  return words;
}

Value format(Runtime& runtime, Value input, Arguments arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty()) {
    throw Failure("can't handle positional and keyword arguments at the same time");
  }
  const Value text = soft_text(runtime, input);
  if (arguments.named.empty())
    return format_percent(runtime, text, make_tuple(std::move(arguments.positional)));
  Pairs pairs;
  for (auto& [name, value] : arguments.named) pairs.emplace_back(Value(name), std::move(value));
  return format_percent(runtime, text, make_dict(std::move(pairs)));
}

Value string(Runtime& runtime, Value input, Arguments arguments) {
  Bound("string", std::move(arguments), {});
  return soft_text(runtime, input);
}

Value safe(Runtime& runtime, Value input, Arguments arguments) {
  Bound("safe", std::move(arguments), {});
  return Value(runtime.text(input), true);
}

Value escape(Runtime& runtime, Value input, Arguments arguments) {
  Bound("escape", std::move(arguments), {});
  return escaped(soft_text(runtime, input));
}

Value force_escape(Runtime& runtime, Value input, Arguments arguments) {
  Bound("forceescape", std::move(arguments), {});
  return escaped(Value(runtime.text(input)));
}

Value url_encode(Runtime& runtime, Value input, Arguments arguments) {
  Bound("urlencode", std::move(arguments), {});
  if (input.is_string() || !is_iterable(input)) return url_quoted(runtime.text(input), false);
  const bool is_dict = input.is_dict();
  if (is_dict) input = Value(std::make_shared<View>(*input.get_if<Dict>(), View::Kind::kItems));
  std::string out;
  for (const Value& item : runtime.items_of(input)) {
    const Values pair = runtime.items_of(item);
    if (pair.size() != 2) throw Failure("urlencode takes pairs");
    if (!out.empty()) out += '&';
    out += url_quoted(runtime.text(pair[0]), true) + "=" + url_quoted(runtime.text(pair[1]), true);
    runtime.charge(1, out.size() / 16);
  }
  return out;
}

Value to_json(Runtime& runtime, Value input, Arguments arguments) {
  const Bound bound("tojson", std::move(arguments),
                    {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = bound.flag(0, false);
  style.sort_keys = bound.flag(3, false);
  if (bound.has(1) && !bound[1].is_none()) {
    style.pretty = true;
    style.item_separator = ",";
    if (bound[1].is_string()) {
      style.indent = bound[1].text();
    } else {
      style.indent = pad(runtime, "", std::max(bound.integer(1, 0), int64_t{0}), " ", Side::kLeft);
    }
  }
  if (bound.has(2) && !bound[2].is_none()) {
    const Values separators = runtime.items_of(bound[2]);
    if (separators.size() != 2 || !separators[0].is_string() || !separators[1].is_string()) {
      throw Failure("tojson: separators must be a pair of strings");
    }
    style.item_separator = separators[0].text();
    style.key_separator = separators[1].text();
  }
  return json_dumps(runtime, input, style);
}

}  // namespace temper::jinja::filters
