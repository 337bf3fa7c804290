// "%s" % values
#include <algorithm>
#include <cmath>
#include <optional>

#include "temper/base/error.h"
#include "temper/text/jinja/format/format.h"
#include "temper/text/jinja/format/spec.h"
#include "temper/text/jinja/strings.h"
#include "temper/text/jinja/unicode.h"

namespace temper::jinja {
namespace {

class Percent {
 public:
  Percent(Runtime& runtime, const std::string& format, const Value& values, bool markup)
      : runtime_(runtime), format_(format), values_(values), markup_(markup) {}

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
    FormatSpec spec;
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

  std::string converted(char conversion, FormatSpec spec, const Value& value) {
    const bool zero = spec.zero && spec.align == '>';
    switch (conversion) {
      case 's':
      case 'r':
      case 'a': {
        spec.zero = false;
        std::string text = conversion == 's' ? runtime_.text(value) : repr(value);
        if (markup_ && !value.is_markup()) text = escaped(Value(std::move(text))).text();
        return format_text(runtime_, std::move(text), spec);
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
        return format_real(runtime_, value.real(), spec);
      case 'c':
        if (value.is_string() && count_code_points(value.text()) == 1) {
          spec.precision = -1;
          return format_text(runtime_, value.text(), spec);
        }
        if (!value.is_integral()) throw Failure("%c requires int or char");
        spec.type = 'c';
        spec.precision = -1;
        return format_integer(runtime_, value.integer(), spec);
      default:
        throw Failure(str("unsupported format character '", conversion, "'"));
    }
  }

  std::string repr(const Value& value) {
    runtime_.charge(weight(value));
    return to_repr(value);
  }

  std::string integer(char type, FormatSpec spec, const Value& value, bool zero) {
    if (!value.is_number())
      throw Failure("%d format: a real number is required, not " + type_name(value));
    if (value.is<double>() && !(std::fabs(value.real()) < 9.2e18))
      throw Failure("float beyond 64 bits to format");
    const int64_t n = value.is<double>() ? static_cast<int64_t>(value.real()) : value.integer();
    // Here the precision is the least number of digits.
    FormatSpec bare;
    bare.type = type;
    bare.alternate = spec.alternate;
    bare.sign = spec.sign;
    std::string text = format_integer(runtime_, n, bare);
    const size_t digits_at = text.find_first_not_of(type == 'd' ? "+- " : "+- xX");
    size_t sign_end =
        type != 'd' && spec.alternate ? text.find(type) + 1 : std::min(digits_at, text.size());
    const std::string sign = text.substr(0, sign_end);
    const std::string digits =
        pad(runtime_, text.substr(sign_end), spec.precision, "0", Side::kRight);
    if (zero) spec.fill = "0", spec.align = '=';
    return place(runtime_, spec, sign, digits);
  }

  Runtime& runtime_;
  const std::string& format_;
  const Value& values_;
  bool markup_;
  size_t used_ = 0;
  std::string out_;
};

}  // namespace

Value format_percent(Runtime& runtime, const Value& format, const Value& values) {
  runtime.charge(format.text().size() / 4);
  return Value(Percent(runtime, format.text(), values, format.is_markup()).run(),
               format.is_markup());
}

}  // namespace temper::jinja
