#include "temper/text/jinja/evaluator.h"

#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>
#include <variant>

#include "temper/base/error.h"
#include "temper/text/jinja/sequences.h"

namespace temper::jinja {

Value Evaluator::eval(const Expression& expression) {
  Runtime::Level level(runtime_);
  runtime_.charge(1);
  runtime_.set_line(expression.line);
  return std::visit([this](const auto& node) { return eval(node); }, expression.node);
}

Value Evaluator::eval_filter(const Expression& filter, const Value& input) {
  const Value* outer = std::exchange(captured_, &input);
  Value filtered = eval(filter);
  captured_ = outer;
  return filtered;
}

Values Evaluator::eval_all(const std::vector<ExpressionPtr>& nodes) {
  Values values;
  values.reserve(nodes.size());
  for (const ExpressionPtr& node : nodes) values.push_back(eval(*node));
  return values;
}

Value Evaluator::eval(const ListLiteral& node) {
  return runtime_.made(make_list(eval_all(node.items)));
}
Value Evaluator::eval(const TupleLiteral& node) {
  return runtime_.made(make_tuple(eval_all(node.items)));
}

Value Evaluator::eval(const DictLiteral& node) {
  Pairs pairs;
  for (const auto& [key, value] : node.items) {
    Value k = eval(*key);
    runtime_.charge(weight(k), 2 * sizeof(Value));
    pairs.emplace_back(std::move(k), eval(*value));
  }
  return make_dict(std::move(pairs));
}

Value Evaluator::eval(const Attribute& node) {
  return runtime_.attribute(eval(*node.object), node.name);
}

Value Evaluator::eval(const Item& node) {
  const Value object = eval(*node.object);
  return runtime_.item(object, eval(*node.key));
}

Value Evaluator::eval(const Slice& node) {
  const Value object = eval(*node.object);
  const auto bound = [&](const ExpressionPtr& e) -> std::optional<int64_t> {
    if (!e) return std::nullopt;
    const Value value = eval(*e);
    if (value.is_none()) return std::nullopt;
    if (!value.is_integral()) throw Failure("slice indices must be integers or None");
    return value.integer();
  };
  const auto start = bound(node.start), stop = bound(node.stop), step = bound(node.step);
  runtime_.charge(length_of(object).value_or(0) / 16);
  return runtime_.made(slice(object, start, stop, step.value_or(1)));
}

Arguments Evaluator::eval_arguments(const CallArguments& node) {
  Arguments arguments{eval_all(node.positional), {}};
  for (const auto& [name, value] : node.named) arguments.named.emplace_back(name, eval(*value));
  if (node.star) {
    Values more = runtime_.items_of(eval(*node.star));
    std::move(more.begin(), more.end(), std::back_inserter(arguments.positional));
  }
  if (node.double_star) {
    const Value more = eval(*node.double_star);
    if (!more.is_dict())
      throw Failure(str("argument after ** must be a mapping, not ", type_name(more)));
    for (const auto& [key, value] : more.get_if<Dict>()->data->pairs) {
      if (!key.is_string()) throw Failure("keywords must be strings");
      runtime_.charge(1 + arguments.named.size() / 16, sizeof(Value));
      for (const auto& named : arguments.named) {
        if (named.first == key.text())
          throw Failure(str("got multiple values for keyword argument '", key.text(), "'"));
      }
      arguments.named.emplace_back(key.text(), value);
    }
  }
  return arguments;
}

Value Evaluator::eval(const Call& node) {
  const int line = runtime_.line();
  const Value callee = eval(*node.callee);
  Arguments arguments = eval_arguments(node.arguments);
  runtime_.set_line(line);
  return runtime_.made(runtime_.call(callee, std::move(arguments)));
}

Value Evaluator::eval(const Filter& node) {
  const int line = runtime_.line();
  Value input = node.input ? eval(*node.input) : *captured_;
  Arguments arguments = eval_arguments(node.arguments);
  runtime_.set_line(line);
  return runtime_.made(runtime_.filter(node.name, std::move(input), std::move(arguments)));
}

Value Evaluator::eval(const Test& node) {
  const int line = runtime_.line();
  const Value input = eval(*node.input);
  Arguments arguments = eval_arguments(node.arguments);
  runtime_.set_line(line);
  return runtime_.test(node.name, input, std::move(arguments));
}

Value Evaluator::eval(const Unary& node) {
  const Value operand = eval(*node.operand);
  return node.op == '!' ? Value(!truth(operand)) : runtime_.negate(operand, node.op);
}

Value Evaluator::eval(const Binary& node) {
  const int line = runtime_.line();
  const Value left = eval(*node.left);
  const Value right = eval(*node.right);
  runtime_.set_line(line);
  return runtime_.made(runtime_.arithmetic(node.op, left, right));
}

Value Evaluator::eval(const Logical& node) {
  Value left = eval(*node.left);
  return truth(left) == node.is_and ? eval(*node.right) : left;
}

Value Evaluator::eval(const Concat& node) {
  std::string out;
  for (const ExpressionPtr& part : node.parts) out += runtime_.text(eval(*part));
  return runtime_.made(Value(std::move(out)));
}

Value Evaluator::eval(const Compare& node) {
  Value left = eval(*node.first);
  for (const auto& [op, expression] : node.rest) {
    Value right = eval(*expression);
    if (!runtime_.relation(op, left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Value Evaluator::eval(const Conditional& node) {
  if (truth(eval(*node.test))) return eval(*node.then);
  if (node.otherwise) return eval(*node.otherwise);
  return make_undefined(
      "the inline if-expression evaluated to false and no else section was defined");
}

}  // namespace temper::jinja
