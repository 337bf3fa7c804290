#include "temper/rewards/value.h"

#include <algorithm>
#include <cmath>

namespace temper::rewards {
namespace {

constexpr uint64_t kModulus = (uint64_t{1} << 61) - 1;
constexpr double kRounding = 1e-14;  // of a sum, as a share of its larger operand
// What is so imprecise (10^20.5 - 10^20.5 + 1) is compared as if it were not: it would equal all.
constexpr double kMostNoise = 1e-9;

uint64_t times(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>(static_cast<Wide>(a) * b % kModulus);
}
uint64_t negative(uint64_t a) { return a == 0 ? 0 : kModulus - a; }

// The value as a count: a whole number from 0 to 1,000,000; nullopt: another value.
std::optional<uint64_t> count_of(const Value& v) {
  const double x = v.number.real();
  if (!v.remainder || v.number.imag() != 0 || !(x >= 0 && x <= 1e6)) return {};
  return static_cast<uint64_t>(x);
}

}  // namespace

Value integer(uint64_t n) { return {static_cast<double>(n), n % kModulus}; }

bool is_finite(const Value& v) {
  return std::isfinite(v.number.real()) && std::isfinite(v.number.imag());
}

Value add(const Value& a, const Value& b) {
  Value sum{a.number + b.number, {}, a.noise + b.noise};
  if (a.remainder && b.remainder) sum.remainder = (*a.remainder + *b.remainder) % kModulus;
  if (!sum.remainder) sum.noise += kRounding * std::max(std::abs(a.number), std::abs(b.number));
  return sum;
}
Value minus(const Value& a) {
  Value out{-a.number, {}, a.noise};
  if (a.remainder) out.remainder = negative(*a.remainder);
  return out;
}
Value multiply(const Value& a, const Value& b) {
  Value product{
      a.number * b.number, {}, a.noise * std::abs(b.number) + b.noise * std::abs(a.number)};
  if (a.remainder && b.remainder) product.remainder = times(*a.remainder, *b.remainder);
  return product;
}
Result divide(const Value& a, const Value& b) {
  if (b.number == 0.0) return {};
  const std::complex<double> quotient = a.number / b.number;
  return Value{quotient, {}, (a.noise + b.noise * std::abs(quotient)) / std::abs(b.number)};
}

Result power_of(const Value& base, const Value& exponent) {
  Value out;
  const std::optional<uint64_t> count = count_of(exponent);
  const bool real = base.number.imag() == 0 && exponent.number.imag() == 0;
  if (base.number == 0.0 && exponent.number.real() <= 0 && !(count && *count == 0)) return {};
  if (real && (base.number.real() >= 0 || exponent.remainder))
    out.number = std::pow(base.number.real(), exponent.number.real());
  else
    out.number = std::pow(base.number, exponent.number);
  if (base.noise > 0 || exponent.noise > 0) out.noise = kNoise;
  if (!base.remainder || !count) return out;
  uint64_t result = 1, square = *base.remainder;
  for (uint64_t n = *count; n > 0; n >>= 1, square = times(square, square))
    if (n & 1) result = times(result, square);
  out.remainder = result;
  return out;
}

Result factorial(const Value& v) {
  const std::optional<uint64_t> n = count_of(v);
  if (!n || *n > 170) return {};
  Value out = integer(1);
  for (uint64_t i = 2; i <= *n; ++i) out = multiply(out, integer(i));
  return out;
}

Result binomial(const Value& n, const Value& k) {
  const std::optional<uint64_t> all = count_of(n), some = count_of(k);
  if (!all || !some || *all > 60) return {};
  if (*some > *all) return integer(0);
  uint64_t out = 1;  // C(60, k) < 2^58, and 60 times that still fits
  for (uint64_t i = 1; i <= std::min(*some, *all - *some); ++i) out = out * (*all + 1 - i) / i;
  return integer(out);
}

uint64_t remainder_of_digits(std::string_view digits) {
  uint64_t out = 0;
  for (const char c : digits) out = (times(out, 10) + static_cast<uint64_t>(c - '0')) % kModulus;
  return out;
}

bool same_value(const Value& a, const Value& b) {
  const double size = std::max(std::abs(a.number), std::abs(b.number));
  const double noise = std::min(kMostNoise, std::max(a.noise, b.noise));
  if (std::abs(a.number - b.number) > std::max(noise, 1e-9 * size)) return false;
  if (a.remainder && b.remainder) return *a.remainder == *b.remainder;
  // Whole numbers that doubles tell apart are not rounded to each other.
  const double x = std::round(a.number.real()), y = std::round(b.number.real());
  const auto is_whole = [](const Value& v, double whole) {
    return std::abs(v.number - whole) < 1e-6 && std::abs(whole) < 0x1p53;
  };
  return x == y || !is_whole(a, x) || !is_whole(b, y);
}

}  // namespace temper::rewards
