// Python's two ways of formatting: "%s %d" % values and "{} {name:>5}".format(...). And json.dumps.
#pragma once

#include <string>

#include "temper/text/jinja/objects.h"

namespace temper::jinja {

// format % values: a tuple gives its items in order, a dict by name, all else is the one value.
Value format_percent(Runtime& runtime, const Value& format, const Value& values);

// str.format(*args, **kwargs).
Value format_braces(Runtime& runtime, const Value& format, const Arguments& arguments);

// The text of a value under a format specification such as ">10", ".2f" or ",".
std::string format_value(Runtime& runtime, const Value& value, const std::string& spec);

// json.dumps as transformers' tojson filter calls it.
struct JsonStyle {
  bool ensure_ascii = false;
  bool pretty = false;  // a line for each element, indented by `indent` per level
  std::string indent;
  std::string item_separator = ", ", key_separator = ": ";
  bool sort_keys = false;
};
std::string json_dumps(Runtime& runtime, const Value& value, const JsonStyle& style);

}  // namespace temper::jinja
