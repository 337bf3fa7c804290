#include "temper/text/jinja/format/spec.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "temper/base/error.h"
#include "temper/text/jinja/format/format.h"
#include "temper/text/jinja/strings.h"
#include "temper/text/jinja/unicode.h"

namespace temper::jinja {
namespace {

bool is_align(char c) { return c == '<' || c == '>' || c == '=' || c == '^'; }

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

std::string sign_of(bool negative, const FormatSpec& spec) {
  return negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
}

}  // namespace

int64_t read_number(const std::string& text, size_t& i) {
  int64_t n = 0;
  for (; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i) {
    n = n * 10 + (text[i] - '0');
    if (n > (int64_t{1} << 40)) throw Failure("width or precision too large");
  }
  return n;
}

FormatSpec parse_spec(const std::string& text) {
  FormatSpec spec;
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

std::string place(Runtime& runtime, const FormatSpec& spec, const std::string& sign,
                  const std::string& digits) {
  if (spec.align == '=') {
    const auto width = spec.width - static_cast<int64_t>(sign.size());
    return sign + pad(runtime, digits, width, spec.fill, Side::kRight);
  }
  const Side side = spec.align == '<'   ? Side::kLeft
                    : spec.align == '^' ? Side::kBoth
                                        : Side::kRight;
  return pad(runtime, sign + digits, spec.width, spec.fill, side);
}

std::string format_integer(Runtime& runtime, int64_t value, const FormatSpec& spec) {
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
  return place(runtime, spec, sign, digits);
}

std::string format_real(Runtime& runtime, double value, const FormatSpec& spec) {
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
  return place(runtime, spec, sign_of(std::signbit(value) && !std::isnan(value), spec), digits);
}

std::string format_text(Runtime& runtime, std::string text, const FormatSpec& spec) {
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
  return pad(runtime, text, spec.width, spec.fill, side);
}

std::string format_value(Runtime& runtime, const Value& value, const std::string& text) {
  if (text.empty()) return runtime.text(value);
  const FormatSpec spec = parse_spec(text);
  if (value.is_string()) return format_text(runtime, value.text(), spec);
  const bool as_real =
      spec.type == '%' ||
      std::string_view("eEfFgG").find(spec.type ? spec.type : ' ') != std::string_view::npos;
  if (value.is<double>() || (value.is_integral() && as_real))
    return format_real(runtime, value.real(), spec);
  if (value.is_integral()) {
    if (value.is<bool>() && spec.type == 0) return format_text(runtime, to_text(value), spec);
    return format_integer(runtime, value.integer(), spec);
  }
  throw Failure(str("unsupported format string passed to ", type_name(value), ".__format__"));
}

}  // namespace temper::jinja
