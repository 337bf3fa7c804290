#include "temper/text/jinja/format.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "temper/base/error.h"
#include "temper/text/jinja/interpreter.h"
#include "temper/text/jinja/strings.h"
#include "temper/text/jinja/unicode.h"

namespace temper::jinja {
namespace {
constexpr int kMaxPrecision = 1000;
constexpr int kMaxDepthOfSpecs = 2;

// [[fill]align][sign][#][0][width][,|_][.precision][type]
struct Spec {
  std::string fill = " ";
  char align = 0, sign = '-', grouping = 0, type = 0;
  bool alternate = false, zero = false;
  int64_t width = 0;
  int precision = -1;
};

int64_t read_number(const std::string& text, size_t& i) {
  int64_t n = 0;
  for (; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i) {
    n = n * 10 + (text[i] - '0');
    if (n > (int64_t{1} << 40)) throw Failure("width or precision too large");
  }
  return n;
}

bool is_align(char c) { return c == '<' || c == '>' || c == '=' || c == '^'; }

Spec parse_spec(const std::string& text) {
  Spec spec;
  const auto at = [&](size_t k) { return k < text.size() ? text[k] : '\0'; };
  size_t i = 0;
  if (!text.empty()) next_code_point(text, i);
  if (!text.empty() && is_align(at(i))) {
    spec.fill = text.substr(0, i);
    spec.align = text[i++];
  } else {
    i = 0;
    if (is_align(at(0))) spec.align = text[i++];
  }
  if (at(i) == '+' || at(i) == '-' || at(i) == ' ') spec.sign = text[i++];
  if (at(i) == '#') spec.alternate = ++i;
  if (at(i) == '0') {
    ++i;
    spec.zero = true;
    if (!spec.align) {
      spec.fill = "0";
      spec.align = '=';
    }
  }
  spec.width = read_number(text, i);
  if (at(i) == ',' || at(i) == '_') spec.grouping = text[i++];
  if (at(i) == '.') {
    ++i;
    if (at(i) < '0' || at(i) > '9') throw Failure("Format specifier missing precision");
    const int64_t precision = read_number(text, i);
    if (precision > kMaxPrecision) throw Failure("precision too large");
    spec.precision = static_cast<int>(precision);
  }
  if (i < text.size()) spec.type = text[i++];
  if (i < text.size()) throw Failure(str("Invalid format specifier '", text, "'"));
  return spec;
}

std::string group_digits(const std::string& digits, char separator, size_t every) {
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i && (digits.size() - i) % every == 0) out += separator;
    out += digits[i];
  }
  return out;
}

std::string in_base(uint64_t value, unsigned base) {
  std::string out;
  do out += "0123456789abcdef"[value % base];
  while (value /= base);
  std::reverse(out.begin(), out.end());
  return out;
}

// Digits of a finite or infinite double without its sign, by C's conversion for types e, f and g.
std::string real_digits(double value, char type, int precision, bool alternate) {
  value = std::fabs(value);
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return "inf";
  const char conversion[] = {'%',
                             alternate ? '#' : '.',
                             alternate ? '.' : '*',
                             alternate ? '*' : type,
                             alternate ? type : '\0',
                             '\0'};
  const int size = std::snprintf(nullptr, 0, conversion, precision, value);
  std::string out(static_cast<size_t>(size) + 1, '\0');
  std::snprintf(out.data(), out.size(), conversion, precision, value);
  out.pop_back();
  return out;
}

// Pads digits that have a sign before them.
std::string place(Interpreter& interpreter, const Spec& spec, const std::string& sign,
                  const std::string& digits) {
  if (spec.align == '=') {
    const auto width = spec.width - static_cast<int64_t>(sign.size());
    return sign + pad(interpreter, digits, width, spec.fill, Side::kRight);
  }
  const Side side = spec.align == '<'   ? Side::kLeft
                    : spec.align == '^' ? Side::kBoth
                                        : Side::kRight;
  return pad(interpreter, sign + digits, spec.width, spec.fill, side);
}

std::string sign_of(bool negative, const Spec& spec) {
  return negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
}

std::string format_integer(Interpreter& interpreter, int64_t value, const Spec& spec) {
  if (spec.precision >= 0) throw Failure("Precision not allowed in integer format specifier");
  const uint64_t magnitude =
      value < 0 ? uint64_t{0} - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  std::string sign = sign_of(value < 0, spec), digits;
  const char lower = static_cast<char>(spec.type | 0x20);
  if (spec.type == 0 || spec.type == 'd' || spec.type == 'n') {
    digits = std::to_string(magnitude);
    if (spec.grouping) digits = group_digits(digits, spec.grouping, 3);
  } else if (lower == 'x' || spec.type == 'o' || spec.type == 'b') {
    digits = in_base(magnitude, lower == 'x' ? 16 : spec.type == 'o' ? 8 : 2);
    if (spec.grouping == ',') throw Failure("Cannot specify ',' with this format");
    if (spec.grouping) digits = group_digits(digits, spec.grouping, 4);
    if (spec.alternate) sign += str("0", spec.type);
    if (spec.type == 'X') digits = to_upper(digits);
  } else if (spec.type == 'c') {
    if (value < 0 || value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
      throw Failure("%c arg not in range");
    append_code_point(digits, static_cast<char32_t>(value));
    sign.clear();
  } else {
    throw Failure(str("Unknown format code '", spec.type, "' for object of type 'int'"));
  }
  return place(interpreter, spec, sign, digits);
}

std::string format_real(Interpreter& interpreter, double value, const Spec& spec) {
  char type = static_cast<char>(spec.type | 0x20);
  std::string digits;
  if (spec.type == '%') {
    digits =
        real_digits(value * 100, 'f', spec.precision < 0 ? 6 : spec.precision, spec.alternate) +
        "%";
  } else if (spec.type == 0 && spec.precision < 0) {
    digits = float_repr(std::fabs(value));
  } else if (spec.type == 0) {
    // Like g, but with at least one digit past the point, and never more digits than the precision.
    digits = real_digits(value, 'g', std::max(spec.precision, 1), false);
    if (digits.find_first_of(".en") == std::string::npos) {
      digits += static_cast<int>(digits.size()) < std::max(spec.precision, 1) ? ".0" : "";
    }
  } else if (type == 'e' || type == 'f' || type == 'g' || type == 'n') {
    if (type == 'n') type = 'g';
    digits = real_digits(value, type, spec.precision < 0 ? 6 : spec.precision, spec.alternate);
  } else {
    throw Failure(str("Unknown format code '", spec.type, "' for object of type 'float'"));
  }
  if (spec.grouping) {
    const size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
    digits = group_digits(digits.substr(0, whole), spec.grouping, 3) + digits.substr(whole);
  }
  if (spec.type >= 'A' && spec.type <= 'Z') digits = to_upper(digits);
  return place(interpreter, spec, sign_of(std::signbit(value) && !std::isnan(value), spec), digits);
}

std::string format_text(Interpreter& interpreter, std::string text, const Spec& spec) {
  if (spec.type && spec.type != 's')
    throw Failure(str("Unknown format code '", spec.type, "' for object of type 'str'"));
  if (spec.sign != '-') throw Failure("Sign not allowed in string format specifier");
  if (spec.align == '=' && !spec.zero)
    throw Failure("'=' alignment not allowed in string format specifier");
  if (spec.grouping) throw Failure("Cannot specify grouping with 's'");
  if (spec.precision >= 0)
    text.resize(byte_of_code_point(text, static_cast<size_t>(spec.precision)));
  const Side side = spec.align == '>'   ? Side::kRight
                    : spec.align == '^' ? Side::kBoth
                                        : Side::kLeft;
  return pad(interpreter, text, spec.width, spec.fill, side);
}

// ------------------------------------------------------------------------------------------------
// "%s" % values

class Percent {
 public:
  Percent(Interpreter& interpreter, const std::string& format, const Value& values, bool markup)
      : interpreter_(interpreter), format_(format), values_(values), markup_(markup) {}

  std::string run() {
    for (size_t i = 0; i < format_.size();) {
      if (format_[i] != '%') {
        out_ += format_[i++];
        continue;
      }
      ++i;
      directive(i);
    }
    const bool all_used =
        values_.is<Tuple>() ? used_ == values_.elements()->size() : used_ > 0 || values_.is_dict();
    // A list, like a dict, may be left over: both can be indexed.
    if (!all_used && !values_.is<List>())
      throw Failure("not all arguments converted during string formatting");
    return std::move(out_);
  }

 private:
  const Value& next() {
    if (values_.is<Tuple>() && used_ < values_.elements()->size())
      return (*values_.elements())[used_++];
    if (values_.is<Tuple>() || used_++ > 0) throw Failure("not enough arguments for format string");
    return values_;
  }

  int64_t number(size_t& i) {
    if (i < format_.size() && format_[i] == '*') {
      ++i;
      const Value& value = next();
      if (!value.is_integral()) throw Failure("* wants int");
      return value.integer();
    }
    return read_number(format_, i);
  }

  void directive(size_t& i) {
    std::optional<Value> named;
    if (i < format_.size() && format_[i] == '(') {
      const size_t end = format_.find(')', i);
      if (end == std::string::npos) throw Failure("incomplete format key");
      const auto* dict = values_.get_if<Dict>();
      if (!dict) throw Failure("format requires a mapping");
      const Value* found = dict->data->find_text(format_.substr(i + 1, end - i - 1));
      if (!found) throw Failure(str("no key '", format_.substr(i + 1, end - i - 1), "' to format"));
      named = *found;
      i = end + 1;
    }
    Spec spec;
    spec.align = '>';
    for (;
         i < format_.size() && std::string_view("-+ #0").find(format_[i]) != std::string_view::npos;
         ++i) {
      const char c = format_[i];
      if (c == '-') spec.align = '<';
      if (c == '+' || (c == ' ' && spec.sign != '+')) spec.sign = c;
      if (c == '#') spec.alternate = true;
      if (c == '0') spec.zero = true;
    }
    spec.width = number(i);
    if (spec.width < 0) {
      spec.width = -spec.width;
      spec.align = '<';
    }
    if (i < format_.size() && format_[i] == '.') {
      const int64_t precision = number(++i);
      if (precision > kMaxPrecision) throw Failure("precision too large");
      spec.precision = static_cast<int>(std::max<int64_t>(precision, 0));
    }
    while (i < format_.size() && (format_[i] == 'h' || format_[i] == 'l' || format_[i] == 'L')) ++i;
    if (i >= format_.size()) throw Failure("incomplete format");
    const char conversion = format_[i++];
    if (conversion == '%') {
      out_ += '%';
      return;
    }
    out_ += converted(conversion, spec, named ? *named : next());
  }

  std::string converted(char conversion, Spec spec, const Value& value) {
    const bool zero = spec.zero && spec.align == '>';
    switch (conversion) {
      case 's':
      case 'r':
      case 'a': {
        spec.zero = false;
        std::string text = conversion == 's' ? interpreter_.text(value) : repr(value);
        if (markup_ && !value.is_markup()) text = escaped(Value(std::move(text))).text();
        return format_text(interpreter_, std::move(text), spec);
      }
      case 'd':
      case 'i':
      case 'u':
        return integer('d', spec, value, zero);
      case 'x':
      case 'X':
      case 'o':
        if (!value.is_integral())
          throw Failure(str("%", conversion, " format: an integer is required"));
        return integer(conversion, spec, value, zero);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        if (!value.is_number()) throw Failure("must be real number, not " + type_name(value));
        spec.type = conversion;
        if (zero) spec.fill = "0", spec.align = '=';
        return format_real(interpreter_, value.real(), spec);
      case 'c':
        if (value.is_string() && count_code_points(value.text()) == 1) {
          spec.precision = -1;
          return format_text(interpreter_, value.text(), spec);
        }
        if (!value.is_integral()) throw Failure("%c requires int or char");
        spec.type = 'c';
        spec.precision = -1;
        return format_integer(interpreter_, value.integer(), spec);
      default:
        throw Failure(str("unsupported format character '", conversion, "'"));
    }
  }

  std::string repr(const Value& value) {
    interpreter_.charge(weight(value));
    return to_repr(value);
  }

  std::string integer(char type, Spec spec, const Value& value, bool zero) {
    if (!value.is_number())
      throw Failure("%d format: a real number is required, not " + type_name(value));
    if (value.is<double>() && !(std::fabs(value.real()) < 9.2e18))
      throw Failure("float beyond 64 bits to format");
    const int64_t n = value.is<double>() ? static_cast<int64_t>(value.real()) : value.integer();
    // Here the precision is the least number of digits.
    Spec bare;
    bare.type = type;
    bare.alternate = spec.alternate;
    bare.sign = spec.sign;
    std::string text = format_integer(interpreter_, n, bare);
    const size_t digits_at = text.find_first_not_of(type == 'd' ? "+- " : "+- xX");
    size_t sign_end =
        type != 'd' && spec.alternate ? text.find(type) + 1 : std::min(digits_at, text.size());
    const std::string sign = text.substr(0, sign_end);
    const std::string digits =
        pad(interpreter_, text.substr(sign_end), spec.precision, "0", Side::kRight);
    if (zero) spec.fill = "0", spec.align = '=';
    return place(interpreter_, spec, sign, digits);
  }

  Interpreter& interpreter_;
  const std::string& format_;
  const Value& values_;
  bool markup_;
  size_t used_ = 0;
  std::string out_;
};

// ------------------------------------------------------------------------------------------------
// "{}".format(...)

class Braces {
 public:
  Braces(Interpreter& interpreter, const Arguments& arguments, bool markup)
      : interpreter_(interpreter), arguments_(arguments), markup_(markup) {}

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
        interpreter_.charge(1);
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
      interpreter_.charge(weight(value));
      out = format_value(interpreter_, Value(to_repr(value)), spec);
    } else if (conversion == 's') {
      out = format_value(interpreter_, Value(interpreter_.text(value)), spec);
    } else if (conversion) {
      throw Failure(str("Unknown conversion specifier ", conversion));
    } else {
      out = format_value(interpreter_, value, spec);
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
        value = interpreter_.attribute(value, name.substr(i + 1, end - i - 1));
        i = end;
      } else {
        const size_t end = name.find(']', i);
        if (end == std::string::npos) throw Failure("Missing ']' in format string");
        const std::string key = name.substr(i + 1, end - i - 1);
        if (key.empty()) throw Failure("Empty attribute in format string");
        const bool is_number = key.find_first_not_of("0123456789") == std::string::npos;
        value = interpreter_.item(value, is_number ? Value(*parse_integer(key, 10)) : Value(key));
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

  Interpreter& interpreter_;
  const Arguments& arguments_;
  bool markup_;
  std::optional<bool> numbered_;
  size_t automatic_ = 0;
};
}  // namespace

Value format_percent(Interpreter& interpreter, const Value& format, const Value& values) {
  interpreter.charge(format.text().size() / 4);
  return Value(Percent(interpreter, format.text(), values, format.is_markup()).run(),
               format.is_markup());
}

Value format_braces(Interpreter& interpreter, const Value& format, const Arguments& arguments) {
  interpreter.charge(format.text().size() / 4);
  return Value(
      Braces(interpreter, arguments, format.is_markup()).run(format.text(), kMaxDepthOfSpecs),
      format.is_markup());
}

std::string format_value(Interpreter& interpreter, const Value& value, const std::string& text) {
  if (text.empty()) return interpreter.text(value);
  const Spec spec = parse_spec(text);
  if (value.is_string()) return format_text(interpreter, value.text(), spec);
  const bool as_real =
      spec.type == '%' ||
      std::string_view("eEfFgG").find(spec.type ? spec.type : ' ') != std::string_view::npos;
  if (value.is<double>() || (value.is_integral() && as_real))
    return format_real(interpreter, value.real(), spec);
  if (value.is_integral()) {
    if (value.is<bool>() && spec.type == 0) return format_text(interpreter, to_text(value), spec);
    return format_integer(interpreter, value.integer(), spec);
  }
  throw Failure(str("unsupported format string passed to ", type_name(value), ".__format__"));
}

}  // namespace temper::jinja
