// "{}".format(...)
#include <optional>

#include "temper/base/error.h"
#include "temper/text/jinja/format/format.h"
#include "temper/text/jinja/format/spec.h"
#include "temper/text/jinja/strings.h"
#include "temper/text/jinja/unicode.h"

namespace temper::jinja {
namespace {

constexpr int kMaxDepthOfSpecs = 2;

class Braces {
 public:
  Braces(Runtime& runtime, const Arguments& arguments, bool markup)
      : runtime_(runtime), arguments_(arguments), markup_(markup) {}

  std::string run(const std::string& format, int depth) {
    if (depth < 0) throw Failure("Max string recursion exceeded");
    std::string out;
    for (size_t i = 0; i < format.size();) {
      const char c = format[i];
      const bool doubled = i + 1 < format.size() && format[i + 1] == c;
      if ((c == '{' || c == '}') && doubled) {
        out += c;
        i += 2;
      } else if (c == '}') {
        throw Failure("Single '}' encountered in format string");
      } else if (c == '{') {
        out += field(format, ++i, depth);
        runtime_.charge(1);
      } else {
        out += c;
        ++i;
      }
    }
    return out;
  }

 private:
  // {name!conversion:spec}, from after the opening brace to after the closing one.
  std::string field(const std::string& format, size_t& i, int depth) {
    const size_t name_start = i;
    for (int brackets = 0;
         i < format.size() &&
         (brackets || std::string_view("!:}{").find(format[i]) == std::string_view::npos);
         ++i) {
      brackets += (format[i] == '[') - (format[i] == ']');
    }
    const std::string name = format.substr(name_start, i - name_start);
    char conversion = 0;
    if (i < format.size() && format[i] == '!') {
      if (i + 1 >= format.size())
        throw Failure("end of string while looking for conversion specifier");
      conversion = format[i + 1];
      i += 2;
      if (i >= format.size() || (format[i] != ':' && format[i] != '}')) {
        throw Failure("expected ':' after conversion specifier");
      }
    }
    std::string spec;
    if (i < format.size() && format[i] == ':') {
      const size_t start = ++i;
      for (int nested = 0; i < format.size() && (nested || format[i] != '}'); ++i) {
        nested += (format[i] == '{') - (format[i] == '}');
      }
      spec = format.substr(start, i - start);
    }
    if (i >= format.size() || format[i] != '}') throw Failure("expected '}' before end of string");
    ++i;
    const Value value = look_up(name);
    spec = run(spec, depth - 1);
    return convert(value, conversion, spec);
  }

  std::string convert(const Value& value, char conversion, const std::string& spec) {
    std::string out;
    if (conversion == 'r' || conversion == 'a') {
      runtime_.charge(weight(value));
      out = format_value(runtime_, Value(to_repr(value)), spec);
    } else if (conversion == 's') {
      out = format_value(runtime_, Value(runtime_.text(value)), spec);
    } else if (conversion) {
      throw Failure(str("Unknown conversion specifier ", conversion));
    } else {
      out = format_value(runtime_, value, spec);
    }
    return markup_ && !value.is_markup() ? escaped(Value(std::move(out))).text() : out;
  }

  // name, number or nothing, followed by .attribute and [item].
  Value look_up(const std::string& name) {
    size_t i = std::min(name.find_first_of(".["), name.size());
    Value value = first(name.substr(0, i));
    while (i < name.size()) {
      if (name[i] == '.') {
        const size_t end = std::min(name.find_first_of(".[", i + 1), name.size());
        if (end == i + 1) throw Failure("Empty attribute in format string");
        value = runtime_.attribute(value, name.substr(i + 1, end - i - 1));
        i = end;
      } else {
        const size_t end = name.find(']', i);
        if (end == std::string::npos) throw Failure("Missing ']' in format string");
        const std::string key = name.substr(i + 1, end - i - 1);
        if (key.empty()) throw Failure("Empty attribute in format string");
        const bool is_number = key.find_first_not_of("0123456789") == std::string::npos;
        value = runtime_.item(value, is_number ? Value(*parse_integer(key, 10)) : Value(key));
        i = end + 1;
        if (i < name.size() && name[i] != '.' && name[i] != '[') {
          throw Failure("Only '.' or '[' may follow ']' in format field specifier");
        }
      }
    }
    return value;
  }

  Value first(const std::string& name) {
    const bool is_number =
        !name.empty() && name.find_first_not_of("0123456789") == std::string::npos;
    if (name.empty() || is_number) {
      if (numbered_ && *numbered_ != is_number) {
        throw Failure("cannot mix automatic field numbering and manual field specification");
      }
      numbered_ = is_number;
      const auto index = is_number ? static_cast<size_t>(*parse_integer(name, 10)) : automatic_++;
      if (index >= arguments_.positional.size())
        throw Failure("Replacement index out of range for positional args");
      return arguments_.positional[index];
    }
    for (const auto& [key, value] : arguments_.named) {
      if (key == name) return value;
    }
    throw Failure(str("no argument named '", name, "' to format"));
  }

  Runtime& runtime_;
  const Arguments& arguments_;
  bool markup_;
  std::optional<bool> numbered_;
  size_t automatic_ = 0;
};

}  // namespace

Value format_braces(Runtime& runtime, const Value& format, const Arguments& arguments) {
  runtime.charge(format.text().size() / 4);
  return Value(Braces(runtime, arguments, format.is_markup()).run(format.text(), kMaxDepthOfSpecs),
               format.is_markup());
}

}  // namespace temper::jinja
