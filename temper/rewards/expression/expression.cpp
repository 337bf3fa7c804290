#include "temper/rewards/expression/expression.h"

#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "temper/rewards/expression/named.h"
#include "temper/rewards/expression/number_literal.h"
#include "temper/rewards/spelling.h"

namespace temper::rewards {
namespace {

constexpr size_t kLongestExpression = 1000;
constexpr int kDeepest = 50;
constexpr int kMostAtoms = 10'000;  // most atoms to read, some of them twice; see mixed()
constexpr int kPoints = 4;
// most letters side by side that are a product of variables and not a word
constexpr size_t kLongestWord = 3;
constexpr double kPi = 3.14159265358979323846;

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
    return degree && value ? root_of(*value, *degree) : Result();
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
      while (x && begins_factor() && next() != '(' && !find_function(command())) {
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
    if (const Function compute = find_function(name))
      return function(compute, name == "\\log" || name == "\\ln", depth);
    if (is_symbol(name)) return variable(std::string(name));
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

  // A number without a sign, or a mixed one: 3\frac12.
  Result number(int depth) {
    const std::optional<NumberLiteral> literal = read_number(text_.substr(at_));
    if (!literal) return {};
    at_ += literal->length;
    const Value& value = literal->value;
    const bool is_integer = value.remainder && !value.logarithm;
    return is_integer && command() == "\\frac" ? mixed(value, depth) : value;
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
