// Python's operators, as far as the values of templates have them.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "temper/base/error.h"
#include "temper/text/jinja/format/format.h"
#include "temper/text/jinja/runtime.h"
#include "temper/text/jinja/sequences.h"
#include "temper/text/jinja/strings.h"

namespace temper::jinja {
namespace {
[[noreturn]] void overflow() { throw Failure("integer result beyond 64 bits"); }

const char* symbol(Arithmetic op) {
  static const char* const symbols[] = {"+", "-", "*", "/", "//", "%", "**"};
  return symbols[static_cast<int>(op)];
}

[[noreturn]] void unsupported(Arithmetic op, const Value& left, const Value& right) {
  throw Failure(str("unsupported operand type(s) for ", symbol(op), ": '", type_name(left),
                    "' and '", type_name(right), "'"));
}

int64_t floor_divide(int64_t a, int64_t b) {
  if (b == 0) throw Failure("integer division or modulo by zero");
  if (b == -1) {
    int64_t result;
    if (__builtin_sub_overflow(int64_t{0}, a, &result)) overflow();
    return result;
  }
  return a / b - ((a % b != 0) && ((a < 0) != (b < 0)));
}

// Python's int / int: the nearest double, on machines of any long double. The quotient of at least
// 55 bits, with the lowest one set if there is a remainder, is rounded once.
double true_divide(int64_t a, int64_t b) {
  const auto magnitude = [](int64_t x) {
    return x < 0 ? -static_cast<uint64_t>(x) : static_cast<uint64_t>(x);
  };
  const uint64_t x = magnitude(a), y = magnitude(b);
  const int shift = std::max(0, 55 + std::countl_zero(x) - std::countl_zero(y));
  const unsigned __int128 shifted = static_cast<unsigned __int128>(x) << shift;
  const uint64_t bits = static_cast<uint64_t>(shifted / y) | (shifted % y != 0);
  const double quotient = std::ldexp(static_cast<double>(bits), -shift);
  return (a < 0) != (b < 0) ? -quotient : quotient;
}

int64_t modulo(int64_t a, int64_t b) {
  if (b == 0) throw Failure("integer division or modulo by zero");
  if (b == -1) return 0;
  const int64_t r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

// Python's float %: the sign of the divisor.
double modulo(double a, double b) {
  if (b == 0) throw Failure("float modulo");
  double r = std::fmod(a, b);
  if (r != 0 && (r < 0) != (b < 0)) r += b;
  return r == 0 ? std::copysign(0.0, b) : r;
}

// Python's float //, which takes the quotient from the exact remainder.
double floor_divide(double a, double b) {
  if (b == 0) throw Failure("float floor division by zero");
  double r = std::fmod(a, b);
  double quotient = (a - r) / b;
  if (r != 0 && (r < 0) != (b < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double whole = std::floor(quotient);
  return quotient - whole > 0.5 ? whole + 1 : whole;
}

Value power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) throw Failure("0.0 cannot be raised to a negative power");
    return std::pow(static_cast<double>(base), static_cast<double>(exponent));
  }
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) overflow();
  }
  return result;
}

Value power(double base, double exponent) {
  if (base == 0 && exponent < 0) throw Failure("0.0 cannot be raised to a negative power");
  if (base < 0 && std::isfinite(base) && std::isfinite(exponent) &&
      exponent != std::floor(exponent)) {
    throw Failure("complex results are not supported");
  }
  const double result = std::pow(base, exponent);
  if (std::isinf(result) && std::isfinite(base) && std::isfinite(exponent))
    throw Failure("numerical result out of range");
  return result;
}

Value integer_arithmetic(Arithmetic op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case Arithmetic::kAdd:
      if (__builtin_add_overflow(a, b, &result)) overflow();
      return result;
    case Arithmetic::kSubtract:
      if (__builtin_sub_overflow(a, b, &result)) overflow();
      return result;
    case Arithmetic::kMultiply:
      if (__builtin_mul_overflow(a, b, &result)) overflow();
      return result;
    case Arithmetic::kDivide:
      if (b == 0) throw Failure("division by zero");
      return true_divide(a, b);
    case Arithmetic::kFloorDivide:
      return floor_divide(a, b);
    case Arithmetic::kModulo:
      return modulo(a, b);
    case Arithmetic::kPower:
      return power(a, b);
  }
  return result;
}

Value real_arithmetic(Arithmetic op, double a, double b) {
  switch (op) {
    case Arithmetic::kAdd:
      return a + b;
    case Arithmetic::kSubtract:
      return a - b;
    case Arithmetic::kMultiply:
      return a * b;
    case Arithmetic::kDivide:
      if (b == 0) throw Failure("float division by zero");
      return a / b;
    case Arithmetic::kFloorDivide:
      return floor_divide(a, b);
    case Arithmetic::kModulo:
      return modulo(a, b);
    case Arithmetic::kPower:
      return power(a, b);
  }
  return {};
}

// Concatenation. One Markup among the two escapes the other.
Value add_strings(const Value& a, const Value& b) {
  const bool markup = a.is_markup() || b.is_markup();
  if (!markup) return a.text() + b.text();
  return Value(escaped(a).text() + escaped(b).text(), true);
}

Value add_sequences(const Value& a, const Value& b) {
  Values items = *a.elements();
  items.insert(items.end(), b.elements()->begin(), b.elements()->end());
  return a.is<List>() ? make_list(std::move(items)) : make_tuple(std::move(items));
}
}  // namespace

Value Runtime::arithmetic(Arithmetic op, const Value& left, const Value& right) {
  for (const Value* operand : {&left, &right}) {
    // "..." % undefined formats it as text.
    if (operand->is_undefined() && !(op == Arithmetic::kModulo && left.is_string())) {
      throw Failure(*operand->get_if<Undefined>()->message);
    }
  }
  if (left.is_integral() && right.is_integral())
    return integer_arithmetic(op, left.integer(), right.integer());
  if (left.is_number() && right.is_number()) return real_arithmetic(op, left.real(), right.real());

  if (op == Arithmetic::kModulo && left.is_string()) return format_percent(*this, left, right);
  if (op == Arithmetic::kAdd) {
    if (left.is_string() && right.is_string()) return add_strings(left, right);
    if (left.elements() && left.data().index() == right.data().index()) {
      charge(left.elements()->size() + right.elements()->size());
      return add_sequences(left, right);
    }
  }
  if (op == Arithmetic::kMultiply) {
    const bool swapped = left.is_integral();
    const Value& repeated = swapped ? right : left;
    const Value& count = swapped ? left : right;
    if (count.is_integral() && (repeated.is_string() || repeated.elements())) {
      return repeat(*this, repeated, count.integer());
    }
  }
  unsupported(op, left, right);
}

Value Runtime::negate(const Value& value, char op) {
  if (value.is_undefined()) throw Failure(*value.get_if<Undefined>()->message);
  if (value.is<double>()) return op == '-' ? -value.real() : value.real();
  if (const auto* big = value.object<BigInteger>()) {
    if (op != '-') return value;
    const std::string& digits = big->digits();
    return Value(std::make_shared<BigInteger>(digits[0] == '-' ? digits.substr(1) : "-" + digits));
  }
  if (!value.is_integral())
    throw Failure(str("bad operand type for unary ", op, ": '", type_name(value), "'"));
  return op == '-' ? integer_arithmetic(Arithmetic::kSubtract, 0, value.integer())
                   : Value(value.integer());
}

bool Runtime::relation(Relation op, const Value& left, const Value& right) {
  if (op == Relation::kIn) return contains(right, left);
  if (op == Relation::kNotIn) return !contains(right, left);
  charge(std::min(weight(left), weight(right)));
  switch (op) {
    case Relation::kEqual:
      return equal(left, right);
    case Relation::kNotEqual:
      return !equal(left, right);
    case Relation::kLess:
      return less(left, right);
    case Relation::kLessEqual:
      return less_equal(left, right);
    case Relation::kGreater:
      return less(right, left);
    default:
      return less_equal(right, left);
  }
}

bool Runtime::contains(const Value& container, const Value& item) {
  if (container.is_string()) {
    if (!item.is_string()) {
      throw Failure(str("'in <string>' requires string as left operand, not ", type_name(item)));
    }
    charge(weight(container));
    return find_text(container.text(), item.text()) != std::string::npos;
  }
  if (const auto* dict = container.get_if<Dict>()) {
    charge(weight(item));
    return dict->data->find(item) != nullptr;
  }
  if (const auto* view = container.object<View>(); view && view->kind() == View::Kind::kKeys) {
    charge(weight(item));
    return view->mapping().find(item) != nullptr;
  }
  if (!is_iterable(container))
    throw Failure(str("argument of type '", type_name(container), "' is not iterable"));
  Cursor cursor(container);
  const size_t item_weight = weight(item);
  for (Value element; cursor.next(element);) {
    charge(std::min(item_weight, weight(element)));
    if (equal(element, item)) return true;
  }
  return false;
}

}  // namespace temper::jinja
