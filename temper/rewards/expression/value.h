// The numbers by which answers are compared.
#pragma once

#include <complex>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace temper::rewards {

struct Value {
  std::complex<double> number;
  // For an integer that was computed from integers alone: its remainder modulo 2^61 - 1, which
  // tells large integers apart that round to the same double.
  std::optional<uint64_t> remainder;
  // By how much rounding may have moved `number`, beyond a share of its size: what is left of sums
  // that cancel (\sqrt{2}^2 - 2) and of functions' values (\sin \pi) counts as 0.
  double noise = 0;
  // For a quotient of such integers: numerator by denominator modulo 2^61 - 1.
  std::optional<uint64_t> ratio = {};
  // Of a real number beyond the range of doubles (2^{2004}, 4^{-1002}): the natural logarithm of
  // its size. `number` then has its sign, and is infinite or about 0.
  std::optional<double> logarithm = {};
};

constexpr double kNoise = 1e-12;  // of a function's value

using Result = std::optional<Value>;  // nullopt: there is no such number

Value integer(uint64_t n);
// The remainder of an integer by its decimal digits.
uint64_t remainder_of_digits(std::string_view digits);
// An integer by its decimal digits, of which there may be more than a double has room for.
Value integer_of_digits(std::string_view digits);

bool is_finite(const Value& v);
Value add(const Value& a, const Value& b);
Value minus(const Value& a);
Value multiply(const Value& a, const Value& b);
Result divide(const Value& a, const Value& b);
// Real where both operands are real and the power can be, else the principal value.
Result power_of(const Value& base, const Value& exponent);
// The root of a real degree: the real one for 2 and 3, where there is one, else the principal
// value. nullopt also for a number below 0 beyond the range of doubles.
Result root_of(const Value& v, const Value& degree);
// At least as many factors are multiplied for v! or C(n, v).
uint64_t factors_of(const Value& v);
Result factorial(const Value& v);                 // up to 10,000!
Result binomial(const Value& n, const Value& k);  // k or n - k up to 10,000

// max, min, gcd or lcm of some numbers. Of a gcd or lcm of `variables` only that their order does
// not count is known.
Result of_list(std::string_view name, std::span<const Value> numbers, bool variables);

// Equal up to the rounding of doubles; integers exactly, as far as the remainders tell.
bool same_value(const Value& a, const Value& b);

}  // namespace temper::rewards
