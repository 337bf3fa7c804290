#include "temper/rewards/expression/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace temper::rewards {
namespace {

constexpr uint64_t kModulus = (uint64_t{1} << 61) - 1;  // a prime
constexpr double kRounding = 1e-14;  // of a sum, as a share of its larger operand
// What is so imprecise (10^20.5 - 10^20.5 + 1) is compared as if it were not: it would equal all.
constexpr double kMostNoise = 1e-9;
constexpr uint64_t kMostFactors = 10'000;
// Beyond these a real number is kept by its logarithm, up to the last of them.
constexpr double kLargest = 1e300, kSmallest = 1e-300, kMostLogarithm = 1e8;

uint64_t times(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>(static_cast<Wide>(a) * b % kModulus);
}
uint64_t negative(uint64_t a) { return a == 0 ? 0 : kModulus - a; }
uint64_t power_modulo(uint64_t base, uint64_t n) {
  uint64_t result = 1;
  for (; n > 0; n >>= 1, base = times(base, base))
    if (n & 1) result = times(result, base);
  return result;
}
uint64_t inverse(uint64_t a) { return power_modulo(a, kModulus - 2); }

bool is_real(const Value& v) { return v.number.imag() == 0; }
bool is_zero(const Value& v) { return v.number == 0.0; }
double sign_of(const Value& v) { return std::signbit(v.number.real()) ? -1 : 1; }
std::optional<uint64_t> residue(const Value& v) { return v.remainder ? v.remainder : v.ratio; }

// A whole number from 0 to `most`, which doubles count exactly; nullopt: another value.
std::optional<uint64_t> count_of(const Value& v, double most) {
  const double x = v.number.real();
  if (!v.remainder || !is_real(v) || !(x >= 0 && x <= most)) return {};
  return static_cast<uint64_t>(x);
}

// Of a real number that is not 0; NaN for another.
double logarithm_of(const Value& v) {
  return v.logarithm ? *v.logarithm
                     : std::log(std::abs(is_real(v) ? v.number.real() : std::nan("")));
}
// sign · e^logarithm.
Value of_logarithm(double sign, double logarithm) {
  if (!(std::abs(logarithm) <= kMostLogarithm)) return {std::nan(""), {}};
  Value out{sign * std::exp(logarithm), {}};
  const bool large = logarithm > std::log(kLargest);
  if (!large && logarithm >= std::log(kSmallest)) return out;
  out.number = sign * (large ? std::numeric_limits<double>::infinity() : kSmallest);
  out.logarithm = logarithm;
  return out;
}
// Whether it has to be computed by logarithms: what doubles give for operands that are not 0 is
// beyond their range.
bool leaves_range(const Value& a, const Value& b, std::complex<double> result) {
  const double size = std::abs(result);
  return a.logarithm || b.logarithm || !(size <= kLargest) || (size < kSmallest && is_real(a));
}

// A sum of which a part is beyond the range, without remainders.
Value sum_beyond_range(const Value& a, const Value& b) {
  double larger = logarithm_of(a), smaller = logarithm_of(b);
  const double sign = larger < smaller ? sign_of(b) : sign_of(a);
  if (larger < smaller) std::swap(larger, smaller);
  const double share = smaller - larger;
  // Nothing would be left of the smaller part, by which such sums differ.
  if (share < std::log(1e-9) && !(residue(a) && residue(b))) return {std::nan(""), {}};
  if (sign_of(a) == sign_of(b)) return of_logarithm(sign, larger + std::log1p(std::exp(share)));
  // Of what nearly cancels nothing is known, but where it is exactly 0.
  if (share > -1e-9) {
    const bool cancels = residue(a) && residue(b) && *residue(a) == negative(*residue(b));
    return cancels ? integer(0) : Value{std::nan(""), {}};
  }
  return of_logarithm(sign, larger + std::log1p(-std::exp(share)));
}

}  // namespace

Value integer(uint64_t n) { return {static_cast<double>(n), n % kModulus}; }

bool is_finite(const Value& v) {
  if (v.logarithm) return std::isfinite(*v.logarithm);
  return std::isfinite(v.number.real()) && std::isfinite(v.number.imag());
}

Value add(const Value& a, const Value& b) {
  const bool large =
      (a.logarithm && std::isinf(a.number.real())) || (b.logarithm && std::isinf(b.number.real()));
  Value sum{a.number + b.number, {}, a.noise + b.noise};
  if (is_zero(a) || is_zero(b))
    sum.logarithm = is_zero(a) ? b.logarithm : a.logarithm;
  else if (large || (a.logarithm && b.logarithm))
    sum = sum_beyond_range(a, b);
  if (a.remainder && b.remainder)
    sum.remainder = (*a.remainder + *b.remainder) % kModulus;
  else if (residue(a) && residue(b))
    sum.ratio = (*residue(a) + *residue(b)) % kModulus;
  if (!sum.remainder && !sum.logarithm)
    sum.noise += kRounding * std::max(std::abs(a.number), std::abs(b.number));
  return sum;
}
Value minus(const Value& a) {
  Value out = a;
  out.number = -a.number;
  if (a.remainder) out.remainder = negative(*a.remainder);
  if (a.ratio) out.ratio = negative(*a.ratio);
  return out;
}
Value multiply(const Value& a, const Value& b) {
  Value product{
      a.number * b.number, {}, a.noise * std::abs(b.number) + b.noise * std::abs(a.number)};
  if (is_zero(a) || is_zero(b))
    product = {0, {}, std::isfinite(product.noise) ? product.noise : 0};
  else if (leaves_range(a, b, product.number) && is_real(a) && is_real(b))
    product = of_logarithm(sign_of(a) * sign_of(b), logarithm_of(a) + logarithm_of(b));
  if (a.remainder && b.remainder)
    product.remainder = times(*a.remainder, *b.remainder);
  else if (residue(a) && residue(b))
    product.ratio = times(*residue(a), *residue(b));
  return product;
}
Result divide(const Value& a, const Value& b) {
  if (is_zero(b)) return {};
  const std::complex<double> quotient = a.number / b.number;
  Value out{quotient, {}, (a.noise + b.noise * std::abs(quotient)) / std::abs(b.number)};
  if (is_zero(a))
    out = {0, {}, b.logarithm ? 0 : out.noise};
  else if (leaves_range(a, b, quotient) && is_real(a) && is_real(b))
    out = of_logarithm(sign_of(a) * sign_of(b), logarithm_of(a) - logarithm_of(b));
  if (residue(a) && residue(b) && *residue(b) != 0)
    out.ratio = times(*residue(a), inverse(*residue(b)));
  return out;
}

Result power_of(const Value& base, const Value& exponent) {
  Value out;
  const double n = exponent.number.real();
  const auto count = count_of(exponent, 0x1p53), below = count_of(minus(exponent), 0x1p53);
  const bool real = is_real(base) && is_real(exponent);
  if (exponent.logarithm) return {};
  if (is_zero(base) && n <= 0 && !(count && *count == 0)) return {};
  if (real && (base.number.real() >= 0 || exponent.remainder))
    out.number = std::pow(base.number.real(), n);
  else
    out.number = std::pow(base.number, exponent.number);
  if (base.noise > 0 || exponent.noise > 0) out.noise = kNoise;
  if (real && !is_zero(base) && (base.number.real() > 0 || count || below) &&
      leaves_range(base, base, out.number)) {
    const bool odd = (count && *count % 2 == 1) || (below && *below % 2 == 1);
    out = of_logarithm(odd ? sign_of(base) : 1, n * logarithm_of(base));
  }
  if (!residue(base)) return out;
  if (count)
    (base.remainder ? out.remainder : out.ratio) = power_modulo(*residue(base), *count);
  else if (below && *residue(base) != 0)
    out.ratio = power_modulo(inverse(*residue(base)), *below);
  return out;
}

Result root_of(const Value& v, const Value& degree) {
  if (is_zero(degree) || !is_real(degree)) return {};
  const double n = degree.number.real(), x = v.number.real();
  if (v.logarithm) return sign_of(v) < 0 ? Result() : of_logarithm(1, logarithm_of(v) / n);
  const double noise = v.noise > 0 ? kNoise : 0;
  if (n == 2 && is_real(v) && x >= 0) return Value{std::sqrt(x), {}, noise};
  if (n == 3 && is_real(v)) return Value{std::cbrt(x), {}, noise};
  return Value{std::pow(v.number, 1 / n), {}, noise};
}

uint64_t factors_of(const Value& v) { return std::min(count_of(v, 1e6).value_or(0), kMostFactors); }

Result factorial(const Value& v) {
  const std::optional<uint64_t> n = count_of(v, static_cast<double>(kMostFactors));
  if (!n) return {};
  Value out = integer(1);
  for (uint64_t i = 2; i <= *n; ++i) out = multiply(out, integer(i));
  return out;
}

Result binomial(const Value& n, const Value& k) {
  const auto all = count_of(n, 1e6), some = count_of(k, 1e6);
  if (!all || !some) return {};
  if (*some > *all) return integer(0);
  const uint64_t factors = std::min(*some, *all - *some);
  if (factors > kMostFactors) return {};
  if (*all <= 60) {
    uint64_t out = 1;  // C(60, k) < 2^58, and 60 times that still fits
    for (uint64_t i = 1; i <= factors; ++i) out = out * (*all + 1 - i) / i;
    return integer(out);
  }
  Value above = integer(1), below = integer(1);
  for (uint64_t i = 1; i <= factors; ++i) {
    above = multiply(above, integer(*all + 1 - i));
    below = multiply(below, integer(i));
  }
  Result out = divide(above, below);
  if (!out) return {};
  out->remainder = std::exchange(out->ratio, {});  // it is whole
  if (std::abs(out->number) < 0x1p53) out->number = std::round(out->number.real());
  return out;
}

namespace {

Result gcd_of(std::span<const Value> numbers, bool least_multiple) {
  Value out = numbers[0];
  for (const Value& v : numbers.subspan(1)) {
    const auto a = static_cast<uint64_t>(std::abs(out.number.real())),
               b = static_cast<uint64_t>(std::abs(v.number.real()));
    const uint64_t divisor = std::gcd(a, b);
    if (!least_multiple || divisor == 0)
      out = integer(divisor);
    else
      out = multiply(integer(a / divisor), integer(b));
    if (!(std::abs(out.number) <= 0x1p53)) return {};  // not exact any more
  }
  return sign_of(out) < 0 ? minus(out) : out;
}

}  // namespace

Result of_list(std::string_view name, std::span<const Value> numbers, bool variables) {
  const bool largest = name == "max", least_multiple = name == "lcm";
  if (numbers.empty()) return {};
  for (const Value& v : numbers)
    if (!is_real(v) || v.logarithm || !is_finite(v)) return {};
  if (largest || name == "min")
    return *std::max_element(numbers.begin(), numbers.end(), [&](const Value& a, const Value& b) {
      const double x = a.number.real(), y = b.number.real();
      return largest ? x < y : x > y;
    });
  const bool whole = std::all_of(numbers.begin(), numbers.end(), [](const Value& v) {
    return v.remainder && std::abs(v.number.real()) <= 0x1p53;
  });
  if (whole) return gcd_of(numbers, least_multiple);
  if (!variables) return {};
  double product = least_multiple ? 1.3 : 0.7;
  for (const Value& v : numbers) product *= 2 + std::sin(1.9 * v.number.real());
  return Value{product, {}};
}

uint64_t remainder_of_digits(std::string_view digits) {
  uint64_t out = 0;
  for (const char c : digits) out = (times(out, 10) + static_cast<uint64_t>(c - '0')) % kModulus;
  return out;
}

Value integer_of_digits(std::string_view digits) {
  const size_t first = digits.find_first_not_of('0');
  if (first == std::string_view::npos) return integer(0);
  const std::string_view all = digits.substr(first), leading = all.substr(0, 300);
  double value = 0;
  std::from_chars(leading.data(), leading.data() + leading.size(), value);
  Value out = value > 0 ? multiply({value, {}},
                                   *power_of(integer(10), integer(all.size() - leading.size())))
                        : Value{std::nan(""), {}};
  out.ratio = {};
  out.remainder = remainder_of_digits(all);
  return out;
}

bool same_value(const Value& a, const Value& b) {
  const auto x = residue(a), y = residue(b);
  if (a.logarithm || b.logarithm) {
    const double p = logarithm_of(a), q = logarithm_of(b);
    const double most = std::max(1e-9, 1e-14 * std::max(std::abs(p), std::abs(q)));
    if (is_zero(a) || is_zero(b) || sign_of(a) != sign_of(b) || !(std::abs(p - q) <= most))
      return false;
    return !x || !y || *x == *y;
  }
  const double size = std::max(std::abs(a.number), std::abs(b.number));
  const double noise = std::min(kMostNoise, std::max(a.noise, b.noise));
  if (std::abs(a.number - b.number) > std::max(noise, 1e-9 * size)) return false;
  if (x && y) return *x == *y;
  // Whole numbers that doubles tell apart are not rounded to each other.
  const double whole_a = std::round(a.number.real()), whole_b = std::round(b.number.real());
  const auto is_whole = [](const Value& v, double whole) {
    return std::abs(v.number - whole) < 1e-6 && std::abs(whole) < 0x1p53;
  };
  return whole_a == whole_b || !is_whole(a, whole_a) || !is_whole(b, whole_b);
}

}  // namespace temper::rewards
