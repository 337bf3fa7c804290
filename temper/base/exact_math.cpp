#include "temper/base/exact_math.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace temper::exact {
namespace {

// The unevaluated sum high + low, |low| at most half a unit in the last place of high (Dekker 1971;
// Joldes, Muller, Popescu, "Tight and rigorous error bounds for basic building blocks of
// double-word arithmetic", 2017).
struct Pair {
  double high = 0, low = 0;
  double rounded() const { return high + low; }
};

Pair sum_of(double a, double b) {
  const double s = a + b, t = s - a;
  return {s, (a - (s - t)) + (b - t)};
}
Pair ordered_sum_of(double a, double b) {  // |a| at least |b|
  const double s = a + b;
  return {s, b - (s - a)};
}
Pair product_of(double a, double b) {
  const double p = a * b;
  return {p, std::fma(a, b, -p)};
}

Pair operator+(Pair a, Pair b) {
  const Pair high = sum_of(a.high, b.high), low = sum_of(a.low, b.low);
  const Pair joined = ordered_sum_of(high.high, high.low + low.high);
  return ordered_sum_of(joined.high, joined.low + low.low);
}
Pair operator*(Pair a, Pair b) {
  const Pair p = product_of(a.high, b.high);
  return ordered_sum_of(p.high, p.low + std::fma(a.high, b.low, a.low * b.high));
}
Pair operator*(Pair a, double b) {
  const Pair p = product_of(a.high, b);
  return ordered_sum_of(p.high, std::fma(a.low, b, p.low));
}
Pair operator-(Pair a) { return {-a.high, -a.low}; }
Pair operator/(Pair a, Pair b) {
  const double q = a.high / b.high;
  const Pair rest = a + -(b * q);
  const double more = rest.high / b.high;
  const Pair last = rest + -(b * more);
  return ordered_sum_of(q, more) + Pair{last.high / b.high, 0};
}
Pair operator/(Pair a, double b) {
  const double q = a.high / b;
  return ordered_sum_of(q, (std::fma(-q, b, a.high) + a.low) / b);
}
// By a power of two: exact, but for denormal results.
Pair scaled(Pair a, int power) { return {std::ldexp(a.high, power), std::ldexp(a.low, power)}; }

// ln 2 and pi / 2 as sums of doubles.
constexpr std::array<double, 3> kLn2{0.6931471805599453, 2.3190468138462996e-17,
                                     5.707708438416212e-34};
constexpr std::array<double, 4> kHalfPi{1.5707963267948966, 6.123233995736766e-17,
                                        -1.4973849048591698e-33, 5.562271104316826e-50};

// x - k * the sum of the parts.
template <size_t n>
Pair reduced(double x, double k, const std::array<double, n>& parts) {
  Pair rest{x, 0};
  for (const double part : parts) rest = rest + -product_of(k, part);
  return rest;
}

// 1 + x / d(0) (1 + x / d(1) (1 + ...)): the Taylor series below.
template <class Divisor>
Pair nested(Pair x, int terms, Divisor divisor) {
  Pair sum{1, 0};
  for (int i = terms; i-- > 0;) sum = Pair{1, 0} + x * sum / divisor(i);
  return sum;
}

// e^x - 1 for |x| up to 0.35: the series at x / 256, then eight times (1 + p)^2 - 1 = 2p + p^2.
Pair small_expm1(Pair x) {
  constexpr int kHalvings = 8, kTerms = 10;
  const Pair part = scaled(x, -kHalvings);
  Pair p = part * nested(part, kTerms, [](int i) { return i + 2.0; });
  for (int i = 0; i < kHalvings; ++i) p = scaled(p, 1) + p * p;
  return p;
}

struct Exponential {
  Pair less_one;  // e^x = 2^power (1 + less_one)
  int power;
};
Exponential exponential(Pair x) {
  const double k = std::nearbyint(x.high * 1.4426950408889634);
  const Pair rest = reduced(x.high, k, kLn2) + Pair{x.low, 0};
  return {small_expm1(rest), static_cast<int>(k)};
}
constexpr double kMost = 709.8, kLeast = -745.2;  // beyond, e^x is infinite or 0

double exp_of(Pair x) {
  if (std::isnan(x.high)) return x.high;
  if (x.high > kMost) return std::numeric_limits<double>::infinity();
  if (x.high < kLeast) return 0;
  const Exponential e = exponential(x);
  return std::ldexp((Pair{1, 0} + e.less_one).rounded(), e.power);
}

// log(1 + x) = 2 artanh(x / (2 + x)), for 1 + x between the roots of 1/2 and 2.
Pair small_log1p(Pair x) {
  constexpr int kTerms = 22;
  const Pair s = x / (Pair{2, 0} + x), square = s * s;
  Pair sum{1.0 / (2 * kTerms + 1), 0};
  for (int i = kTerms; i-- > 0;) sum = Pair{1, 0} / (2.0 * i + 1) + square * sum;
  return scaled(s * sum, 1);
}

// Of a positive number.
Pair log_of(Pair x) {
  int power = 0;
  if (std::frexp(x.high, &power) < 0.70710678118654752) --power;
  const Pair mantissa = scaled(x, -power);
  Pair log = small_log1p(Pair{-1, 0} + mantissa);
  for (size_t i = kLn2.size(); i-- > 0;) log = log + product_of(power, kLn2[i]);
  return log;
}

// x is e.g. 0, infinite or nan: what log gives there.
bool has_no_log(double x) { return !(x > 0) || std::isinf(x); }
double special_log(double x) {
  if (x == 0) return -std::numeric_limits<double>::infinity();
  return x > 0 ? x : std::numeric_limits<double>::quiet_NaN();
}

constexpr double kLargestAngle = 1 << 30;

// The cosine of x - quarters * pi / 2.
double cosine(double x, int quarters) {
  const double k = std::nearbyint(x * 0.63661977236758134);
  const Pair rest = reduced(x, k, kHalfPi), square = -(rest * rest);
  constexpr int kTerms = 14;
  const int quadrant = static_cast<int>((static_cast<int64_t>(k) - quarters) & 3);
  const Pair value =
      quadrant % 2 == 0
          ? nested(square, kTerms, [](int i) { return (2.0 * i + 1) * (2.0 * i + 2); })
          : rest * nested(square, kTerms, [](int i) { return (2.0 * i + 2) * (2.0 * i + 3); });
  // Of the quarters 0 to 3: cos, -sin, -cos, sin.
  return quadrant == 1 || quadrant == 2 ? -value.rounded() : value.rounded();
}

}  // namespace

double exp(double x) { return exp_of({x, 0}); }

double expm1(double x) {
  if (std::isnan(x) || x == 0) return x;
  if (x > kMost) return std::numeric_limits<double>::infinity();
  if (x < -40) return -1;
  const Exponential e = exponential({x, 0});
  if (e.power == 0) return e.less_one.rounded();
  if (e.power > 100) return std::ldexp((Pair{1, 0} + e.less_one).rounded(), e.power);
  return (scaled(Pair{1, 0} + e.less_one, e.power) + Pair{-1, 0}).rounded();
}

double log(double x) { return has_no_log(x) ? special_log(x) : log_of({x, 0}).rounded(); }

double log1p(double x) {
  if (x == 0 || has_no_log(1 + x)) return x == 0 ? x : special_log(1 + x);
  if (x > -0.25 && x < 0.4) return small_log1p({x, 0}).rounded();
  return log_of(sum_of(1, x)).rounded();
}

double pow(double base, double exponent) {
  if (exponent == 0 || base == 1) return 1;
  if (has_no_log(base) || !std::isfinite(exponent)) return std::pow(base, exponent);  // exact
  const Pair log = log_of({base, 0});
  if (std::abs(log.high * exponent) > 1000)
    return log.high * exponent > 0 ? std::numeric_limits<double>::infinity() : 0;
  return exp_of(log * exponent);
}

double cos(double x) { return std::abs(x) <= kLargestAngle ? cosine(x, 0) : std::cos(x); }
double sin(double x) {
  if (x == 0) return x;
  return std::abs(x) <= kLargestAngle ? cosine(x, 1) : std::sin(x);
}

double sigmoid(double x) {
  const double e = exp(-std::abs(x));
  return x >= 0 ? 1 / (1 + e) : e / (1 + e);
}
double log_sigmoid(double x) { return (x < 0 ? x : 0) - log1p(exp(-std::abs(x))); }

// Cody and Waite's reduction, the series to x^13, and 2^k in two halves, so that results near the
// ends of the range are right.
double quick_exp(double x) {
  if (std::isnan(x)) return x;
  const double bounded = x > 710 ? 710 : x < -746 ? -746 : x;
  constexpr double kRound = 0x1.8p52;  // adding and subtracting it rounds to the nearest integer
  const double k = (bounded * 1.4426950408889634 + kRound) - kRound;
  // 33 bits of ln 2, so that k times them is exact, and the rest.
  const double r = (bounded - k * 6.93147180369123816490e-01) - k * 1.90821492927058770002e-10;
  double sum = 1 / 6227020800.0;
  for (const double coefficient :
       {1 / 479001600.0, 1 / 39916800.0, 1 / 3628800.0, 1 / 362880.0, 1 / 40320.0, 1 / 5040.0,
        1 / 720.0, 1 / 120.0, 1 / 24.0, 1 / 6.0, 1 / 2.0})
    sum = sum * r + coefficient;
  const double y = 1 + (r + r * r * sum);
  const int64_t power = static_cast<int64_t>(k), half = power / 2;
  const auto two_to = [](int64_t n) { return std::bit_cast<double>((n + 1023) << 52); };
  return y * two_to(half) * two_to(power - half);
}

namespace {

// 2 artanh(s), |s| up to 0.1716.
double quick_artanh_twice(double s) {
  const double square = s * s;
  double sum = 1 / 23.0;
  for (double n = 21; n >= 3; n -= 2) sum = sum * square + 1 / n;
  return 2 * s + 2 * s * (square * sum);
}

}  // namespace

double quick_log(double x) {
  if (has_no_log(x)) return special_log(x);
  int power = 0;
  double mantissa = std::frexp(x, &power);
  if (mantissa < 0.70710678118654752) mantissa *= 2, --power;
  const double log = quick_artanh_twice((mantissa - 1) / (mantissa + 1)), k = power;
  return k * 6.93147180369123816490e-01 + (log + k * 1.90821492927058770002e-10);
}

double quick_log1p(double x) {
  return x < 0.41 ? quick_artanh_twice(x / (2 + x)) : quick_log(1 + x);
}

float log_float(float x) {
  const double y = static_cast<double>(x);
  if (has_no_log(y)) return static_cast<float>(special_log(y));
  return rounded(std::log(y), [y] { return log(y); });
}

}  // namespace temper::exact
