#include "temper/text/jinja/parse/expressions.h"

#include <algorithm>
#include <utility>

#include "temper/text/jinja/objects.h"

namespace temper::jinja {
namespace {

// Limit on the height of an expression's tree, also for long chains such as a ~ b ~ c or x|f|g.
constexpr int kMaxHeight = 400;

int height(const ExpressionPtr& e) { return e ? e->height : 0; }
int height(const std::vector<ExpressionPtr>& list) {
  int most = 0;
  for (const auto& e : list) most = std::max(most, e->height);
  return most;
}
int height(const CallArguments& arguments) {
  int most = std::max(
      {height(arguments.positional), height(arguments.star), height(arguments.double_star)});
  for (const auto& [name, value] : arguments.named) most = std::max(most, value->height);
  return most;
}

}  // namespace

ExpressionPtr ExpressionParser::make(int line, int children, Expression::Node node) const {
  if (children >= kMaxHeight) throw SyntaxFailure(line, "expression too long or nested too deeply");
  return std::make_unique<const Expression>(Expression{line, children + 1, std::move(node)});
}

void ExpressionParser::note_load(const std::string& name) {
  for (SpecialNames& macro : macros_) {
    if (macro.open.contains(name)) macro.used.insert(name);
  }
}

ExpressionPtr ExpressionParser::expression(bool conditional) {
  Level level(*this);
  return conditional ? parse_conditional() : parse_or();
}

ExpressionPtr ExpressionParser::parse_conditional() {
  Level level(*this);
  const int line = token().line;
  ExpressionPtr then = parse_or();
  while (skip_name("if")) {
    ExpressionPtr test = parse_or();
    ExpressionPtr otherwise = skip_name("else") ? parse_conditional() : nullptr;
    const int h = std::max({height(test), height(then), height(otherwise)});
    then = make(line, h, Conditional{std::move(test), std::move(then), std::move(otherwise)});
  }
  return then;
}

ExpressionPtr ExpressionParser::parse_or() {
  ExpressionPtr left = parse_and();
  for (int line = token().line; skip_name("or"); line = token().line) {
    ExpressionPtr right = parse_and();
    const int h = std::max(height(left), height(right));
    left = make(line, h, Logical{false, std::move(left), std::move(right)});
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_and() {
  ExpressionPtr left = parse_not();
  for (int line = token().line; skip_name("and"); line = token().line) {
    ExpressionPtr right = parse_not();
    const int h = std::max(height(left), height(right));
    left = make(line, h, Logical{true, std::move(left), std::move(right)});
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_not() {
  Level level(*this);
  const int line = token().line;
  if (!skip_name("not")) return parse_compare();
  ExpressionPtr operand = parse_not();
  const int h = height(operand);
  return make(line, h, Unary{'!', std::move(operand)});
}

ExpressionPtr ExpressionParser::parse_compare() {
  static const std::pair<std::string_view, Relation> relations[] = {
      {"==", Relation::kEqual},     {"!=", Relation::kNotEqual}, {"<", Relation::kLess},
      {"<=", Relation::kLessEqual}, {">", Relation::kGreater},   {">=", Relation::kGreaterEqual}};
  const int line = token().line;
  Compare node{parse_sum(), {}};
  int h = height(node.first);
  for (;;) {
    std::optional<Relation> relation;
    for (const auto& [op, r] : relations) {
      if (!relation && skip_op(op)) relation = r;
    }
    if (!relation && skip_name("in")) relation = Relation::kIn;
    if (!relation && at_name("not") && is(look(), Kind::kName, "in")) {
      next();
      next();
      relation = Relation::kNotIn;
    }
    if (!relation) break;
    ExpressionPtr right = parse_sum();
    h = std::max(h, height(right));
    node.rest.emplace_back(*relation, std::move(right));
  }
  if (node.rest.empty()) return std::move(node.first);
  return make(line, h, std::move(node));
}

ExpressionPtr ExpressionParser::binary(int line, Arithmetic op, ExpressionPtr left,
                                       ExpressionPtr right) const {
  const int h = std::max(height(left), height(right));
  return make(line, h, Binary{op, std::move(left), std::move(right)});
}

ExpressionPtr ExpressionParser::parse_sum() {
  ExpressionPtr left = parse_concat();
  for (;;) {
    const int line = token().line;
    if (skip_op("+"))
      left = binary(line, Arithmetic::kAdd, std::move(left), parse_concat());
    else if (skip_op("-"))
      left = binary(line, Arithmetic::kSubtract, std::move(left), parse_concat());
    else
      return left;
  }
}

ExpressionPtr ExpressionParser::parse_concat() {
  const int line = token().line;
  Concat node;
  node.parts.push_back(parse_product());
  while (skip_op("~")) node.parts.push_back(parse_product());
  if (node.parts.size() == 1) return std::move(node.parts[0]);
  const int h = height(node.parts);
  return make(line, h, std::move(node));
}

ExpressionPtr ExpressionParser::parse_product() {
  static const std::pair<std::string_view, Arithmetic> ops[] = {{"*", Arithmetic::kMultiply},
                                                                {"/", Arithmetic::kDivide},
                                                                {"//", Arithmetic::kFloorDivide},
                                                                {"%", Arithmetic::kModulo}};
  ExpressionPtr left = parse_power();
  for (;;) {
    const int line = token().line;
    const auto* op =
        std::find_if(std::begin(ops), std::end(ops), [&](const auto& o) { return at_op(o.first); });
    if (op == std::end(ops)) return left;
    next();
    left = binary(line, op->second, std::move(left), parse_power());
  }
}

ExpressionPtr ExpressionParser::parse_power() {
  ExpressionPtr left = parse_unary();
  for (int line = token().line; skip_op("**"); line = token().line) {
    left = binary(line, Arithmetic::kPower, std::move(left), parse_unary());
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_unary(bool with_filter) {
  Level level(*this);
  const int line = token().line;
  ExpressionPtr node;
  if (at_op("-") || at_op("+")) {
    const char op = next().text[0];
    ExpressionPtr operand = parse_unary(false);
    const int h = height(operand);
    node = make(line, h, Unary{op, std::move(operand)});
  } else {
    node = parse_primary();
  }
  node = parse_postfix(std::move(node));
  return with_filter ? parse_filters_and_tests(std::move(node)) : std::move(node);
}

ExpressionPtr ExpressionParser::parse_primary() {
  const int line = token().line;
  switch (token().kind) {
    case Kind::kName: {
      std::string name = next().text;
      if (name == "true" || name == "True") return make(line, 0, Constant{Value(true)});
      if (name == "false" || name == "False") return make(line, 0, Constant{Value(false)});
      if (name == "none" || name == "None") return make(line, 0, Constant{Value(None{})});
      note_load(name);
      return make(line, 0, Name{std::move(name)});
    }
    case Kind::kString: {
      std::string text;
      while (token().kind == Kind::kString) text += next().text;
      return make(line, 0, Constant{Value(std::move(text))});
    }
    case Kind::kInteger: {
      const Token number = next();
      if (number.text.empty()) return make(line, 0, Constant{Value(number.integer)});
      return make(line, 0, Constant{Value(std::make_shared<BigInteger>(number.text))});
    }
    case Kind::kFloat:
      return make(line, 0, Constant{Value(next().real)});
    default:
      break;
  }
  if (skip_op("(")) {
    ExpressionPtr node = parse_tuple(true, true);
    expect_op(")");
    return node;
  }
  if (at_op("[")) return parse_list();
  if (at_op("{")) return parse_dict();
  fail(str("unexpected ", describe()));
}

// One expression, or several with commas between them, which make a tuple.
ExpressionPtr ExpressionParser::parse_tuple(bool conditional, bool parenthesized,
                                            std::string_view end) {
  Level level(*this);
  const int line = token().line;
  TupleLiteral node;
  bool is_tuple = false;
  for (;;) {
    if (!node.items.empty()) expect_op(",");
    const bool ended = token().kind == Kind::kPrintEnd || token().kind == Kind::kBlockEnd ||
                       at_op(")") || (!end.empty() && at_name(end));
    if (ended) break;
    node.items.push_back(expression(conditional));
    if (!at_op(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !node.items.empty()) return std::move(node.items[0]);
  if (!is_tuple && !parenthesized) fail(str("expected an expression, got ", describe()));
  const int h = height(node.items);
  return make(line, h, std::move(node));
}

ExpressionPtr ExpressionParser::parse_list() {
  const int line = next().line;
  ListLiteral node;
  while (!at_op("]")) {
    if (!node.items.empty()) expect_op(",");
    if (at_op("]")) break;
    node.items.push_back(expression());
  }
  next();
  const int h = height(node.items);
  return make(line, h, std::move(node));
}

ExpressionPtr ExpressionParser::parse_dict() {
  const int line = next().line;
  DictLiteral node;
  int h = 0;
  while (!at_op("}")) {
    if (!node.items.empty()) expect_op(",");
    if (at_op("}")) break;
    ExpressionPtr key = expression();
    expect_op(":");
    ExpressionPtr value = expression();
    h = std::max({h, height(key), height(value)});
    node.items.emplace_back(std::move(key), std::move(value));
  }
  next();
  return make(line, h, std::move(node));
}

ExpressionPtr ExpressionParser::parse_postfix(ExpressionPtr node) {
  for (;;) {
    if (at_op(".") || at_op("["))
      node = parse_subscript(std::move(node));
    else if (at_op("("))
      node = parse_call(std::move(node));
    else
      return node;
  }
}

ExpressionPtr ExpressionParser::parse_filters_and_tests(ExpressionPtr node) {
  for (;;) {
    if (at_op("|"))
      node = parse_filter_chain(std::move(node));
    else if (at_name("is"))
      node = parse_test(std::move(node));
    else if (at_op("("))
      node = parse_call(std::move(node));
    else
      return node;
  }
}

ExpressionPtr ExpressionParser::parse_subscript(ExpressionPtr node) {
  const int line = token().line;
  const int h = height(node);
  if (skip_op(".")) {
    if (token().kind == Kind::kName) return make(line, h, Attribute{std::move(node), next().text});
    if (token().kind != Kind::kInteger) fail(str("expected a name or a number, got ", describe()));
    return make(line, h, Item{std::move(node), make(line, 0, Constant{Value(next().integer)})});
  }
  expect_op("[");
  // Each bound of a slice may be missing; a tuple of keys is what Python makes of several.
  ExpressionPtr start, stop, step;
  const auto bound = [&]() -> ExpressionPtr {
    return at_op(":") || at_op("]") ? nullptr : expression();
  };
  if (!at_op(":")) {
    TupleLiteral keys;
    keys.items.push_back(expression());
    while (skip_op(",")) {
      if (at_op("]")) fail("expected an expression");
      keys.items.push_back(expression());
    }
    if (skip_op("]")) {
      const int deepest = std::max(h, height(keys.items) + 1);
      ExpressionPtr key = std::move(keys.items[0]);
      if (keys.items.size() > 1) {
        keys.items[0] = std::move(key);
        key = make(line, height(keys.items), std::move(keys));
      }
      return make(line, deepest, Item{std::move(node), std::move(key)});
    }
    if (keys.items.size() > 1) fail("a slice cannot stand among several keys");
    start = std::move(keys.items[0]);
  }
  expect_op(":");
  stop = bound();
  if (skip_op(":")) step = bound();
  expect_op("]");
  const int deepest = std::max({h, height(start), height(stop), height(step)});
  return make(line, deepest,
              Slice{std::move(node), std::move(start), std::move(stop), std::move(step)});
}

ExpressionPtr ExpressionParser::parse_call(ExpressionPtr node) {
  const int line = token().line;
  CallArguments arguments = parse_arguments();
  const int h = std::max(height(node), height(arguments));
  return make(line, h, Call{std::move(node), std::move(arguments)});
}

std::string ExpressionParser::dotted_name() {
  std::string name = any_name();
  while (skip_op(".")) name += "." + any_name();
  return name;
}

// One filter, after the `|`.
ExpressionPtr ExpressionParser::parse_filter(ExpressionPtr node) {
  const int line = token().line;
  Filter filter{std::move(node), dotted_name(), {}};
  if (at_op("(")) filter.arguments = parse_arguments();
  const int h = std::max(height(filter.input), height(filter.arguments));
  return make(line, h, std::move(filter));
}

ExpressionPtr ExpressionParser::parse_filter_chain(ExpressionPtr node) {
  while (skip_op("|")) node = parse_filter(std::move(node));
  return node;
}

ExpressionPtr ExpressionParser::parse_test(ExpressionPtr node) {
  const int line = next().line;
  const bool negated = skip_name("not");
  Test test{std::move(node), dotted_name(), {}};
  const bool operand = token().kind == Kind::kName || token().kind == Kind::kString ||
                       token().kind == Kind::kInteger || token().kind == Kind::kFloat ||
                       at_op("[") || at_op("{");
  if (at_op("(")) {
    test.arguments = parse_arguments();
  } else if (operand && !at_any_name({"else", "or", "and"})) {
    if (at_name("is")) fail("tests with 'is' cannot be chained");
    test.arguments.positional.push_back(parse_postfix(parse_primary()));
  }
  const int h = std::max(height(test.input), height(test.arguments));
  ExpressionPtr made = make(line, h, std::move(test));
  return negated ? make(line, h + 1, Unary{'!', std::move(made)}) : std::move(made);
}

CallArguments ExpressionParser::parse_arguments() {
  CallArguments arguments;
  const auto ensure = [&](bool ok) {
    if (!ok) fail("invalid syntax for function call expression");
  };
  expect_op("(");
  for (bool first = true; !at_op(")"); first = false) {
    if (!first) {
      expect_op(",");
      if (at_op(")")) break;
    }
    if (skip_op("*")) {
      ensure(!arguments.star && !arguments.double_star);
      arguments.star = expression();
    } else if (skip_op("**")) {
      ensure(!arguments.double_star);
      arguments.double_star = expression();
    } else if (token().kind == Kind::kName && is(look(), Kind::kOperator, "=")) {
      ensure(!arguments.double_star);
      std::string name = next().text;
      next();
      for (const auto& named : arguments.named) ensure(named.first != name);
      arguments.named.emplace_back(std::move(name), expression());
    } else {
      ensure(!arguments.star && !arguments.double_star && arguments.named.empty());
      arguments.positional.push_back(expression());
    }
  }
  next();
  return arguments;
}

}  // namespace temper::jinja
