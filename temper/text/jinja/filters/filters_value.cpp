#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "temper/base/error.h"
#include "temper/text/jinja/filters/filter_functions.h"
#include "temper/text/jinja/runtime.h"
#include "temper/text/jinja/strings.h"

namespace temper::jinja::filters {
namespace {
int64_t truncated(double value) {
  if (!(std::fabs(value) < 9223372036854775807.0))
    throw Failure("cannot convert float infinity or beyond 64 bits to integer");
  return static_cast<int64_t>(value);
}

// Python's round(float, digits): the exact decimal value, ties to even.
double round_digits(double value, int64_t digits) {
  if (!std::isfinite(value) || digits > 330) return value;
  if (digits < -330) return std::copysign(0.0, value);
  if (digits >= 0) {
    char buffer[700];
    std::snprintf(buffer, sizeof buffer, "%.*f", static_cast<int>(digits), value);
    return std::strtod(buffer, nullptr);
  }
  const long double scale = std::pow(10.0L, static_cast<long double>(-digits));
  return static_cast<double>(std::nearbyint(static_cast<long double>(value) / scale) * scale);
}

int64_t round_digits(int64_t value, int64_t digits) {
  if (digits >= 0) return value;
  if (digits < -18) return 0;
  int64_t scale = 1;
  for (int64_t i = 0; i < -digits; ++i) scale *= 10;
  const int64_t rest = value % scale, down = value - rest;
  const int64_t twice = 2 * std::abs(rest);  // scale is at most 1e18
  const bool away = twice > scale || (twice == scale && (down / scale) % 2 != 0);
  int64_t result = down;
  if (away && __builtin_add_overflow(down, rest < 0 ? -scale : scale, &result)) {
    throw Failure("integer result beyond 64 bits");
  }
  return result;
}
}  // namespace

Value use_default(Runtime&, Value input, Arguments arguments) {
  const Bound bound("default", std::move(arguments), {"default_value", "boolean"});
  const bool replaced = input.is_undefined() || (bound.flag(1, false) && !truth(input));
  return replaced ? bound.get(0, "") : input;
}

Value attr(Runtime&, Value input, Arguments arguments) {
  const Bound bound("attr", std::move(arguments), {"name"}, 1);
  const std::string name = bound.text(0, "");
  if (const auto* undefined = input.get_if<Undefined>()) throw Failure(*undefined->message);
  return find_method(input, name).value_or(make_undefined(str("no attribute '", name, "'")));
}

Value to_int(Runtime&, Value input, Arguments arguments) {
  const Bound bound("int", std::move(arguments), {"default", "base"});
  if (const auto* undefined = input.get_if<Undefined>()) throw Failure(*undefined->message);
  if (input.is_integral()) return input.integer();
  if (input.is<double>())
    return std::isnan(input.real()) ? bound.get(0, 0) : truncated(input.real());
  if (input.is_string()) {
    if (const auto value = parse_integer(input.text(), bound.integer(1, 10))) return *value;
    const auto real = parse_real(input.text());
    if (real && std::isfinite(*real)) return truncated(*real);
  }
  return bound.get(0, 0);
}

Value to_float(Runtime&, Value input, Arguments arguments) {
  const Bound bound("float", std::move(arguments), {"default"});
  if (const auto* undefined = input.get_if<Undefined>()) throw Failure(*undefined->message);
  if (input.is_number()) return input.real();
  if (input.is_string()) {
    if (const auto value = parse_real(input.text())) return *value;
  }
  return bound.get(0, 0.0);
}

Value absolute(Runtime& runtime, Value input, Arguments arguments) {
  Bound("abs", std::move(arguments), {});
  if (!input.is_number())
    throw Failure(str("bad operand type for abs(): '", type_name(input), "'"));
  const bool negative = input.is<double>() ? std::signbit(input.real()) : input.integer() < 0;
  return runtime.negate(input, negative ? '-' : '+');
}

Value round(Runtime& runtime, Value input, Arguments arguments) {
  const Bound bound("round", std::move(arguments), {"precision", "method"});
  const int64_t precision = bound.integer(0, 0);
  const std::string method = bound.text(1, "common");
  if (method != "common" && method != "ceil" && method != "floor") {
    throw Failure("method must be common, ceil or floor");
  }
  if (!input.is_number()) throw Failure(str("type ", type_name(input), " cannot be rounded"));
  if (method == "common") {
    return input.is<double>() ? Value(round_digits(input.real(), precision))
                              : Value(round_digits(input.integer(), precision));
  }
  const Value scale = runtime.arithmetic(Arithmetic::kPower, 10, precision);
  const Value scaled = runtime.arithmetic(Arithmetic::kMultiply, input, scale);
  const double whole = method == "ceil" ? std::ceil(scaled.real()) : std::floor(scaled.real());
  return runtime.arithmetic(Arithmetic::kDivide, truncated(whole), scale);
}

Value length(Runtime&, Value input, Arguments arguments) {
  Bound("length", std::move(arguments), {});
  const auto n = length_of(input);
  if (!n) throw Failure(str("object of type '", type_name(input), "' has no len()"));
  return static_cast<int64_t>(*n);
}

}  // namespace temper::jinja::filters
