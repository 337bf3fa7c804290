#include "temper/rewards/expression.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string>
#include <vector>

#include "temper/rewards/spelling.h"

namespace temper::rewards {
namespace {

using Complex = std::complex<double>;

constexpr size_t kLongestExpression = 1000;
constexpr int kDeepest = 50;
constexpr int kMostAtoms = 10'000;  // most atoms to read, some of them twice; see mixed()
constexpr int kPoints = 4;
// most letters side by side that are a product of variables and not a word
constexpr size_t kLongestWord = 3;
constexpr double kPi = 3.14159265358979323846;

// A number that stands for a variable: all above 0 at point 0, all below at point 1.
Complex number_for(std::string_view name, int point) {
  uint64_t h = 1469598103934665603u + static_cast<uint64_t>(point) * 0x9E3779B97F4A7C15u;
  for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 1099511628211u;
  h ^= h >> 29;
  h *= 0xBF58476D1CE4E5B9u;
  h ^= h >> 32;
  const double x = 0.2 + 2.6 * static_cast<double>(h >> 11) * 0x1p-53;
  return point == 1 || (point > 1 && h % 2 == 1) ? -x : x;
}

using Function = Complex (*)(Complex);
struct NamedFunction {
  std::string_view name;
  Function compute;
};
constexpr std::array<NamedFunction, 16> kFunctions{{
    {"\\sin", [](Complex x) { return std::sin(x); }},
    {"\\cos", [](Complex x) { return std::cos(x); }},
    {"\\tan", [](Complex x) { return std::tan(x); }},
    {"\\cot", [](Complex x) { return 1.0 / std::tan(x); }},
    {"\\sec", [](Complex x) { return 1.0 / std::cos(x); }},
    {"\\csc", [](Complex x) { return 1.0 / std::sin(x); }},
    {"\\arcsin", [](Complex x) { return std::asin(x); }},
    {"\\arccos", [](Complex x) { return std::acos(x); }},
    {"\\arctan", [](Complex x) { return std::atan(x); }},
    {"\\sinh", [](Complex x) { return std::sinh(x); }},
    {"\\cosh", [](Complex x) { return std::cosh(x); }},
    {"\\tanh", [](Complex x) { return std::tanh(x); }},
    {"\\exp", [](Complex x) { return std::exp(x); }},
    {"\\ln", [](Complex x) { return std::log(x); }},
    {"\\log", [](Complex x) { return std::log10(x); }},
    {"\\lg", [](Complex x) { return std::log10(x); }},
}};

constexpr std::array<std::string_view, 30> kSymbols{
    "\\alpha", "\\beta",   "\\gamma",  "\\delta", "\\epsilon", "\\zeta",     "\\eta",   "\\theta",
    "\\iota",  "\\kappa",  "\\lambda", "\\mu",    "\\nu",      "\\xi",       "\\rho",   "\\sigma",
    "\\tau",   "\\phi",    "\\varphi", "\\chi",   "\\psi",     "\\omega",    "\\Gamma", "\\Delta",
    "\\Theta", "\\Lambda", "\\Phi",    "\\Omega", "\\infty",   "\\emptyset",
};

// Recursive descent over sum > product > sign > power > atom. Every step either moves on or fails.
class Parser {
 public:
  Parser(std::string_view text, int point) : text_(text), point_(point) {}

  std::optional<Evaluated> parse() {
    const Result value = fraction(0);
    skip_space();
    if (!value || at_ != text_.size() || !is_finite(*value)) return {};
    return Evaluated{*value, has_variables_};
  }

 private:
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  char next() {
    skip_space();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (next() != c) return false;
    ++at_;
    return true;
  }
  // The LaTeX command at this place, empty where there is none; take_command() consumes it.
  std::string_view command() {
    if (next() != '\\') return {};
    size_t end = at_ + 1;
    while (end < text_.size() && is_letter(text_[end])) ++end;
    return text_.substr(at_, end - at_);
  }
  bool take_command(std::string_view name) {
    if (command() != name) return false;
    at_ += name.size();
    return true;
  }
  bool take_escaped(char c) {
    if (next() != '\\' || at_ + 1 >= text_.size() || text_[at_ + 1] != c) return false;
    at_ += 2;
    return true;
  }

  // The content of brackets: a sum, or two sums with \over or \choose between them.
  Result fraction(int depth) {
    const Result above = sum(depth);
    const bool over = take_command("\\over");
    if (!above || (!over && !take_command("\\choose"))) return above;
    const Result below = sum(depth);
    if (!below) return {};
    return over ? divide(*above, *below) : counted(*below, binomial(*above, *below));
  }

  Result sum(int depth) {
    if (depth > kDeepest) return {};
    Result left = product(depth);
    while (left) {
      const bool plus = take('+');
      if (!plus && !take('-')) break;
      const Result right = product(depth);
      if (!right) return {};
      left = add(*left, plus ? *right : minus(*right));
    }
    return left;
  }

  // True where the text goes on with another factor of a product without a sign: 2\sqrt{3}, 3(1+2),
  // 2x; digits only after a letter.
  bool begins_factor() {
    const char c = next();
    if (c == '(' || is_letter(c)) return true;
    if (is_digit(c)) return after_letter_;
    const std::string_view name = command();
    return name.size() > 1 && name != "\\rceil" && name != "\\rfloor" && name != "\\over" &&
           name != "\\choose";
  }

  Result product(int depth) {
    Result left = signed_value(depth);
    while (left) {
      if (take('*')) {
        const Result right = signed_value(depth);
        left = right ? Result(multiply(*left, *right)) : Result();
      } else if (take('/')) {
        const Result right = signed_value(depth);
        left = right ? divide(*left, *right) : Result();
      } else if (begins_factor()) {
        const Result right = power(depth);
        left = right ? Result(multiply(*left, *right)) : Result();
      } else {
        break;
      }
    }
    return left;
  }

  Result signed_value(int depth) {
    if (depth > kDeepest) return {};
    if (take('-')) {
      const Result value = signed_value(depth + 1);
      return value ? Result(minus(*value)) : value;
    }
    if (take('+')) return signed_value(depth + 1);
    return power(depth);
  }

  Result power(int depth) {
    after_letter_ = false;
    Result base = atom(depth);
    if (base && next() == '!') {
      ++at_;
      base = at_ < text_.size() && text_[at_] == '!' ? Result() : counted(*base, factorial(*base));
      after_letter_ = true;  // 5!2! is a product
    }
    if (base && take('%')) base = divide(*base, integer(100));
    if (base && take(kDegree)) base = Value{base->number * (kPi / 180), {}};
    if (!base || !take('^')) return base;
    const Result exponent = next() == '{' ? group('{', '}', depth) : exponent_without_braces(depth);
    after_letter_ = false;
    return exponent ? power_of(*base, *exponent) : exponent;
  }
  // `product`, if there are atoms left for the time that the product of n factors took.
  Result counted(const Value& n, Result product) {
    atoms_left_ -= static_cast<int>(factors_of(n) / 100);
    return atoms_left_ < 0 ? Result() : product;
  }
  Result exponent_without_braces(int depth) {
    return depth > kDeepest ? Result() : signed_value(depth + 1);
  }

  Result group(char open, char close, int depth) {
    if (depth > kDeepest || !take(open)) return {};
    const Result value = fraction(depth + 1);
    after_letter_ = false;
    return value && take(close) ? value : Result();
  }

  Result argument(int depth) {  // \frac12 is \frac{1}{2}, \sqrt x is \sqrt{x}
    const char c = next();
    if (c == '{') return group('{', '}', depth);
    if (is_digit(c)) {
      ++at_;
      return integer(static_cast<uint64_t>(c - '0'));
    }
    if (is_letter(c)) return letter();
    return c == '\\' && depth <= kDeepest ? atom(depth + 1) : Result();
  }

  Result two_arguments(int depth, Result (*compute)(const Value&, const Value&)) {
    const Result first = argument(depth), second = first ? argument(depth) : Result();
    return second ? counted(compute == binomial ? *second : Value(), compute(*first, *second))
                  : Result();
  }

  Result root(int depth) {
    Result degree = integer(2);
    if (next() == '[') degree = group('[', ']', depth);
    const Result value = next() == '(' ? group('(', ')', depth) : argument(depth);
    if (!degree || !value || degree->number == 0.0) return {};
    const double n = degree->number.real(), x = value->number.real();
    if (degree->number.imag() != 0) return {};
    if (value->logarithm) return root_beyond_range(*value, n);
    const double noise = value->noise > 0 ? kNoise : 0;
    // The real root, where there is one.
    if (n == 2 && value->number.imag() == 0 && x >= 0) return Value{std::sqrt(x), {}, noise};
    if (n == 3 && value->number.imag() == 0) return Value{std::cbrt(x), {}, noise};
    return Value{std::pow(value->number, 1 / n), {}, noise};
  }

  // \sin x, \sin^2 x, \log_2 5, \ln(3): up to the next sign, function or bracket.
  Result function(Function compute, bool logarithm, int depth) {
    if (depth > kDeepest) return {};
    Result base, exponent;
    if (logarithm && take('_') && !(base = argument(depth + 1))) return {};
    if (take('^') && !(exponent = argument(depth + 1))) return {};
    Result x;
    if (next() == '(' || next() == '{') {
      x = power(depth + 1);
    } else {
      x = signed_value(depth + 1);
      while (x && begins_factor() && next() != '(' && !is_function(command())) {
        const Result more = power(depth + 1);
        x = more ? Result(multiply(*x, *more)) : Result();
      }
    }
    if (!x) return {};
    if (x->logarithm && (!logarithm || x->number.real() < 0)) return {};
    const Complex natural = x->logarithm ? Complex(*x->logarithm) : std::log(x->number);
    Complex value = base           ? natural / std::log(base->number)
                    : x->logarithm ? natural * compute(10.0) / std::log(10.0)
                                   : compute(x->number);
    if (exponent && exponent->number == -1.0) return {};  // \\sin^{-1}: its inverse, or 1 over it
    if (exponent) value = std::pow(value, exponent->number);
    return Value{value, {}, kNoise};
  }

  // \max(a, b), \gcd\{a, b\}
  Result function_of_list(std::string_view name, int depth) {
    const bool set = take_escaped('{');
    if (depth > kDeepest || (!set && !take('('))) return {};
    std::vector<Value> numbers;
    do {
      const Result one = sum(depth + 1);
      if (!one) return {};
      numbers.push_back(*one);
    } while (take(',') || take(';'));
    after_letter_ = false;
    if (!(set ? take_escaped('}') : take(')'))) return {};
    return of_list(name, numbers, has_variables_);
  }

  static bool is_function(std::string_view name) {
    return std::any_of(kFunctions.begin(), kFunctions.end(),
                       [&](const NamedFunction& f) { return f.name == name; });
  }

  Result rounded(std::string_view close, double (*round)(double), int depth) {
    const Result value = sum(depth + 1);
    if (!value || value->number.imag() != 0 || !take_command(close)) return {};
    const double whole = round(value->number.real());
    if (!(std::abs(whole) <= 1e15)) return {};  // NaN neither
    const Value out = integer(static_cast<uint64_t>(std::abs(whole)));
    return whole < 0 ? minus(out) : out;
  }

  Result named(int depth) {
    const std::string_view name = command();
    at_ += name.size();
    after_letter_ = false;
    if (name == "\\frac") return two_arguments(depth, divide);
    if (name == "\\binom") return two_arguments(depth, binomial);
    if (name == "\\sqrt") return root(depth);
    if (takes_list(name.substr(1))) return function_of_list(name.substr(1), depth);
    after_letter_ = true;
    if (name == "\\pi") return Value{kPi, {}};
    if (name == "\\lceil") return rounded("\\rceil", std::ceil, depth);
    if (name == "\\lfloor") return rounded("\\rfloor", std::floor, depth);
    for (const NamedFunction& f : kFunctions)
      if (f.name == name) return function(f.compute, name == "\\log" || name == "\\ln", depth);
    if (std::count(kSymbols.begin(), kSymbols.end(), name) > 0) return variable(std::string(name));
    return {};
  }

  // A variable's name includes its index: x_1 or x_{12}.
  Result variable(std::string name) {
    if (take('_')) {
      const size_t begin = at_;
      if (take('{')) {
        const size_t close = text_.find('}', at_);
        if (close == std::string_view::npos) return {};
        at_ = close + 1;
        name.append(text_.substr(begin + 1, close - begin - 1));
      } else if (at_ < text_.size()) {
        name += text_[at_++];
      }
    }
    has_variables_ = true;
    return Value{number_for(name, point_), {}};
  }

  Result letter() {
    const char c = text_[at_];
    size_t end = at_;
    while (end < text_.size() && is_letter(text_[end])) ++end;
    size_t begin = at_;
    while (begin > 0 && is_letter(text_[begin - 1])) --begin;
    if (end - begin > kLongestWord) return {};
    ++at_;
    after_letter_ = true;
    if (c == 'i') return Value{{0, 1}, {}};
    if (c == 'e') return Value{std::exp(1.0), {}};
    return variable({c});
  }

  Result atom(int depth) {
    if (--atoms_left_ < 0) return {};
    const char c = next();
    if (c == '\\') return depth > kDeepest ? Result() : named(depth);
    if (c == '(') return group('(', ')', depth);
    if (c == '[') return group('[', ']', depth);
    if (c == '{') return group('{', '}', depth);
    if (c == '|') {
      const Result value = group('|', '|', depth);
      if (!value) return {};
      if (value->logarithm) return value->number.real() < 0 ? minus(*value) : value;
      return Value{std::abs(value->number), {}, value->noise};
    }
    if (is_letter(c)) return letter();
    return number(depth);
  }

  size_t digits_from(size_t at) const {
    while (at < text_.size() && is_digit(text_[at])) ++at;
    return at;
  }

  // 12, 1.5, .5, 1.5e3, 0.1\overline{6}, 3\frac12
  Result number(int depth) {
    const size_t begin = at_;
    size_t end = digits_from(at_);
    const size_t whole = end;
    if (end < text_.size() && text_[end] == '.') end = digits_from(end + 1);
    if (end == begin || end == begin + (whole == begin ? 1 : 0)) return {};
    if (const auto repeated = repeating(begin, whole, end)) return repeated;
    const bool scientific = exponent_follows(end);
    if (scientific) end = digits_from(end + (is_digit(text_[end + 1]) ? 1 : 2));
    double value = 0;
    const auto [stop, error] = std::from_chars(text_.data() + begin, text_.data() + end, value);
    if (error == std::errc::result_out_of_range && whole == end && !scientific) {
      at_ = end;
      return integer_of_digits(text_.substr(begin, end - begin));
    }
    if (error != std::errc() || stop != text_.data() + end) return {};
    at_ = end;
    Value out{value, {}};
    const size_t last = text_.find_last_not_of('0', end - 1);
    if (whole == end || (!scientific && last != std::string_view::npos && last <= whole))
      out.remainder = remainder_of_digits(text_.substr(begin, whole - begin));
    if (!out.remainder || command() != "\\frac") return out;
    return mixed(out, depth);
  }

  bool exponent_follows(size_t at) const {
    if (at + 1 >= text_.size() || (text_[at] != 'e' && text_[at] != 'E')) return false;
    if (is_digit(text_[at + 1])) return true;
    return (text_[at + 1] == '-' || text_[at + 1] == '+') && at + 2 < text_.size() &&
           is_digit(text_[at + 2]);
  }

  // 3\frac12 is 3 and a half; 3\frac{x}{2} is a product, which product() makes: it reads the
  // fraction again, and those within it twice as often.
  Result mixed(const Value& whole, int depth) {
    const size_t before = at_;
    take_command("\\frac");
    const Result above = argument(depth), below = above ? argument(depth) : Result();
    if (above && below && above->remainder && below->remainder && above->number.real() >= 0)
      if (const Result part = divide(*above, *below)) return add(whole, *part);
    at_ = before;
    return whole;
  }

  // 0.1\overline{6}: the digits under the line go on for ever.
  std::optional<Value> repeating(size_t begin, size_t whole, size_t end) {
    if (whole == end) return {};
    std::string_view rest = text_.substr(end);
    const std::string_view line = "\\overline{";
    if (!rest.starts_with(line)) return {};
    rest.remove_prefix(line.size());
    size_t length = 0;
    while (length < rest.size() && is_digit(rest[length])) ++length;
    if (length == 0 || length > 15 || length == rest.size() || rest[length] != '}') return {};
    double head = 0, tail = 0;
    const std::string written = "0" + std::string(text_.substr(begin, end - begin)) + "0";
    std::from_chars(written.data(), written.data() + written.size(), head);
    std::from_chars(rest.data(), rest.data() + length, tail);
    at_ = end + line.size() + length + 1;
    const double scale = std::pow(10.0, -static_cast<double>(end - whole - 1));
    return Value{head + scale * tail / (std::pow(10.0, static_cast<double>(length)) - 1), {}};
  }

  std::string_view text_;
  size_t at_ = 0;
  const int point_;
  int atoms_left_ = kMostAtoms;
  bool has_variables_ = false, after_letter_ = false;
};

}  // namespace

std::optional<Evaluated> evaluate_at(std::string_view text, int point) {
  if (text.size() > kLongestExpression) return {};
  return Parser(text, point).parse();
}

bool same_value(std::string_view a, std::string_view b) {
  for (int point = 0; point < kPoints; ++point) {
    const std::optional<Evaluated> x = evaluate_at(a, point), y = evaluate_at(b, point);
    if (!x || !y || !same_value(x->value, y->value)) return false;
    if (!x->has_variables && !y->has_variables) return true;
  }
  return true;
}

}  // namespace temper::rewards
