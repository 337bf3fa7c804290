// Sums with a calculator: the policy may call the tool `calculator` as often as it likes; the
// first turn without a call is its answer, worth 1 where its last number is the row's `answer`.
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>

#include "temper/base/error.h"
#include "temper/env/environment.h"

namespace temper::env {
namespace {

constexpr int kDeepest = 100;  // most brackets within each other

// A number, + - * / and brackets, with the usual precedence. Throws RunError saying what is wrong.
class Expression {
 public:
  static double value(std::string_view text) {
    Expression e(text);
    const double sum = e.sum(0);
    check(e.peek() == '\0', "found `", e.peek(), "` where the expression should end");
    check(std::isfinite(sum), "the result is not a finite number");
    return sum;
  }

 private:
  explicit Expression(std::string_view text) : text_(text) {}
  char peek() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    const bool found = peek() == c;
    at_ += found;
    return found;
  }
  double sum(int depth) {
    double value = product(depth);
    while (peek() == '+' || peek() == '-')
      value += text_[at_++] == '+' ? product(depth) : -product(depth);
    return value;
  }
  double product(int depth) {
    double value = factor(depth);
    while (true) {
      if (take('*'))
        value *= factor(depth);
      else if (take('/'))
        value /= factor(depth);
      else
        return value;
    }
  }
  double factor(int depth) {
    check(depth < kDeepest, "nested too deeply");
    if (take('-')) return -factor(depth + 1);
    if (take('(')) {
      const double value = sum(depth + 1);
      check(take(')'), "expected `)`");
      return value;
    }
    peek();
    double value = 0;
    const auto [end, error] =
        std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    check(error == std::errc() && std::isfinite(value), "expected a number at byte ", at_);
    at_ = static_cast<size_t>(end - text_.data());
    return value;
  }

  std::string_view text_;
  size_t at_ = 0;
};

// 12 for 12.0; else as JSON writes it.
std::string as_text(double value) {
  constexpr double kExact = 1e15;
  if (value == std::floor(value) && std::abs(value) < kExact)
    return std::to_string(static_cast<int64_t>(value));
  return dump_json(Json(value));
}

// The last number of a text, also one written as 1,042.
std::optional<double> last_number(const std::string& text) {
  size_t end = text.find_last_of("0123456789");
  if (end == std::string::npos) return {};
  size_t begin = text.find_last_not_of("0123456789.,", end) + 1;
  begin = text.find_first_of("0123456789.", begin);
  if (begin > 0 && text[begin - 1] == '-') --begin;
  std::string number = text.substr(begin, end - begin + 1);
  std::erase(number, ',');
  double value = 0;
  const auto [at, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

class Calculator : public Environment {
 public:
  Observation reset(const Json& row) override {
    const Json answer = row.value("answer", Json());
    const std::optional<double> number =
        last_number(answer.is_string() ? answer.get<std::string>() : dump_json(answer));
    check<DataError>(number.has_value(), "the environment calculator reads the field `answer`, a ",
                     "number; found ", dump_json(answer));
    answer_ = *number;
    Observation first;
    first.tools = Json::array(
        {{{"type", "function"},
          {"function",
           {{"name", "calculator"},
            {"description", "Evaluates an expression of numbers, + - * / and brackets."},
            {"parameters",
             {{"type", "object"},
              {"properties", {{"expression", {{"type", "string"}}}}},
              {"required", {"expression"}}}}}}}});
    return first;
  }

  Observation step(const Turn& turn) override {
    Observation next;
    const auto tell = [&](const std::string& text) {
      next.messages.push_back({{"role", "tool"}, {"name", "calculator"}, {"content", text}});
    };
    for (const ToolCall& call : turn.calls) tell(answer(call));
    for (const std::string& problem : turn.problems) tell("error: " + problem);
    next.done = next.messages.empty();
    if (next.done) next.reward = last_number(turn.completion) == answer_ ? 1 : 0;
    return next;
  }

 private:
  static std::string answer(const ToolCall& call) {
    if (call.name != "calculator") return "error: there is no tool `" + call.name + "`";
    const Json expression = call.arguments.value("expression", Json());
    if (!expression.is_string()) return "error: expected the argument `expression`, a text";
    try {
      return as_text(Expression::value(expression.get_ref<const std::string&>()));
    } catch (const RunError& e) {
      return std::string("error: ") + e.what();
    }
  }

  double answer_ = 0;
};

const Registered<MakeEnvironment> kCalculator(
    &environments,
    {"calculator", &make_environment<Calculator>,
     "a tool `calculator` for + - * and brackets; 1 for the last number being the row's `answer`"});

}  // namespace
}  // namespace temper::env
