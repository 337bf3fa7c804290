#include <algorithm>
#include <initializer_list>
#include <set>

#include "temper/base/error.h"
#include "temper/text/jinja/lexer.h"
#include "temper/text/jinja/objects.h"
#include "temper/text/jinja/syntax.h"

namespace temper::jinja {
namespace {
using Kind = Token::Kind;

// limit on the parser's own recursion: brackets, unary operators, nested blocks
constexpr int kMaxParserDepth = 120;
// limit on the height of an expression's tree, also for long chains such as a ~ b ~ c or x|f|g
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

class Parser {
 public:
  explicit Parser(std::string_view source) : tokens_(tokenize(source)) {}

  Body run() {
    Body body = statements({});
    return body;
  }

 private:
  using Names = std::initializer_list<std::string_view>;

  // Bounds the recursion for as long as it lives.
  struct Level {
    explicit Level(Parser& parser) : depth(parser.depth_) {
      if (++depth > kMaxParserDepth) parser.fail("nested too deeply");
    }
    ~Level() { --depth; }
    int& depth;
  };
  // Which of caller, kwargs and varargs a macro's body reads before it assigns them.
  struct SpecialNames {
    std::set<std::string, std::less<>> open{"caller", "kwargs", "varargs"}, used;
  };

  const Token& token() const { return tokens_[pos_]; }
  const Token& look() const { return tokens_[std::min(pos_ + 1, tokens_.size() - 1)]; }
  Token next() { return token().kind == Kind::kEnd ? token() : std::move(tokens_[pos_++]); }
  [[noreturn]] void fail(const std::string& message) const {
    throw SyntaxFailure(token().line, message);
  }
  static bool is(const Token& t, Kind kind, std::string_view text) {
    return t.kind == kind && t.text == text;
  }
  bool at_op(std::string_view op) const { return is(token(), Kind::kOperator, op); }
  bool at_name(std::string_view name) const { return is(token(), Kind::kName, name); }
  bool at_any_name(Names names) const {
    return std::any_of(names.begin(), names.end(), [&](std::string_view n) { return at_name(n); });
  }
  bool skip_op(std::string_view op) { return at_op(op) && (next(), true); }
  bool skip_name(std::string_view name) { return at_name(name) && (next(), true); }
  void expect_op(std::string_view op) {
    if (!skip_op(op)) fail(str("expected '", op, "', got ", describe()));
  }
  void expect_name(std::string_view name) {
    if (!skip_name(name)) fail(str("expected '", name, "', got ", describe()));
  }
  std::string any_name() {
    if (token().kind != Kind::kName) fail(str("expected a name, got ", describe()));
    return next().text;
  }
  void expect(Kind kind, const char* what) {
    if (token().kind != kind) fail(str("expected ", what, ", got ", describe()));
    next();
  }
  std::string describe() const;

  ExpressionPtr make(int line, int children, Expression::Node node) const {
    if (children >= kMaxHeight)
      throw SyntaxFailure(line, "expression too long or nested too deeply");
    return std::make_unique<const Expression>(Expression{line, children + 1, std::move(node)});
  }

  // Statements.
  Body statements(Names ends);
  Body block(Names ends);
  void statement(Body& body);
  Statement::Node parse_for();
  Statement::Node parse_if();
  Statement::Node parse_set();
  Statement::Node parse_macro();
  Statement::Node parse_call_block();
  Statement::Node parse_filter_block();
  Statement::Node parse_with();
  Statement::Node parse_print();
  Statement::Node parse_generation();
  Statement::Node parse_loop_control();
  std::vector<Parameter> parse_signature();
  void macro_body(MacroDefinition& macro, std::string_view end);
  Body function_body(std::string_view end);
  Target parse_target(bool with_namespace);
  Target parse_single_target(bool with_namespace);
  void note_store(const std::string& name);
  void note_load(const std::string& name);

  // Expressions, loosest first.
  ExpressionPtr expression(bool conditional = true);
  ExpressionPtr parse_conditional();
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_compare();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concat();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_unary(bool with_filter = true);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_tuple(bool conditional = true, bool parenthesized = false,
                            std::string_view end = {});
  ExpressionPtr parse_list();
  ExpressionPtr parse_dict();
  ExpressionPtr parse_postfix(ExpressionPtr node);
  ExpressionPtr parse_filters_and_tests(ExpressionPtr node);
  ExpressionPtr parse_subscript(ExpressionPtr node);
  ExpressionPtr parse_call(ExpressionPtr node);
  ExpressionPtr parse_filter(ExpressionPtr node);
  ExpressionPtr parse_filter_chain(ExpressionPtr node);
  ExpressionPtr parse_test(ExpressionPtr node);
  CallArguments parse_arguments();
  std::string dotted_name();
  ExpressionPtr binary(int line, Arithmetic op, ExpressionPtr left, ExpressionPtr right) const;

  std::vector<Token> tokens_;
  size_t pos_ = 0;
  int depth_ = 0;
  int for_depth_ = 0;  // enclosing for statements, in which `loop` may not be assigned
  int breakable_ = 0;  // enclosing loops that break and continue could leave
  std::vector<SpecialNames> macros_;  // enclosing macros, innermost last
};

std::string Parser::describe() const {
  switch (token().kind) {
    case Kind::kText:
      return "template text";
    case Kind::kPrintBegin:
      return "'{{'";
    case Kind::kPrintEnd:
      return "'}}'";
    case Kind::kBlockBegin:
      return "'{%'";
    case Kind::kBlockEnd:
      return "'%}'";
    case Kind::kString:
      return "a string";
    case Kind::kInteger:
    case Kind::kFloat:
      return "a number";
    case Kind::kEnd:
      return "the end of the template";
    default:
      return "'" + token().text + "'";
  }
}

// Up to one of the end tags, whose name is then the current token; with none, up to the end of the
// template.
Body Parser::statements(Names ends) {
  Level level(*this);
  Body body;
  for (;;) {
    const int line = token().line;
    if (token().kind == Kind::kEnd) {
      if (ends.size()) fail(str("unexpected end of template; looking for '", *ends.begin(), "'"));
      return body;
    }
    if (token().kind == Kind::kText) {
      body.push_back({line, Text{next().text}});
    } else if (token().kind == Kind::kPrintBegin) {
      next();
      Print print;
      print.values.push_back(parse_tuple());
      expect(Kind::kPrintEnd, "'}}'");
      body.push_back({line, std::move(print)});
    } else {
      expect(Kind::kBlockBegin, "'{%'");
      if (at_any_name(ends)) return body;
      statement(body);
      expect(Kind::kBlockEnd, "'%}'");
    }
  }
}

// The body of a block statement, after its head.
Body Parser::block(Names ends) {
  skip_op(":");
  expect(Kind::kBlockEnd, "'%}'");
  return statements(ends);
}

void Parser::statement(Body& body) {
  static const std::pair<std::string_view, Statement::Node (Parser::*)()> tags[] = {
      {"for", &Parser::parse_for},
      {"if", &Parser::parse_if},
      {"set", &Parser::parse_set},
      {"macro", &Parser::parse_macro},
      {"call", &Parser::parse_call_block},
      {"filter", &Parser::parse_filter_block},
      {"with", &Parser::parse_with},
      {"print", &Parser::parse_print},
      {"break", &Parser::parse_loop_control},
      {"continue", &Parser::parse_loop_control},
      {"generation", &Parser::parse_generation},
  };
  const int line = token().line;
  if (token().kind != Kind::kName) fail(str("expected a tag's name, got ", describe()));
  for (const auto& [name, parse] : tags) {
    if (!at_name(name)) continue;
    body.push_back({line, (this->*parse)()});
    return;
  }
  fail(str("unknown or misplaced tag '", token().text, "'"));
}

Statement::Node Parser::parse_for() {
  next();
  For node;
  ++for_depth_;
  node.target = parse_target(false);
  expect_name("in");
  node.iterable = parse_tuple(false, false, "recursive");
  if (skip_name("if")) node.test = expression();
  if (at_name("recursive")) fail("recursive loops are not supported");
  ++breakable_;
  node.body = block({"endfor", "else"});
  --breakable_;
  if (next().text == "else") {
    node.otherwise = block({"endfor"});
    next();
  }
  --for_depth_;
  return node;
}

Statement::Node Parser::parse_if() {
  If node;
  std::string tag = next().text;
  while (tag != "else" && tag != "endif") {
    ExpressionPtr test = parse_tuple(false);
    Body body = block({"elif", "else", "endif"});
    node.branches.emplace_back(std::move(test), std::move(body));
    tag = next().text;
  }
  if (tag == "else") {
    node.otherwise = block({"endif"});
    next();
  }
  return node;
}

Statement::Node Parser::parse_set() {
  next();
  Target target = parse_target(true);
  if (skip_op("=")) return Assign{std::move(target), parse_tuple()};
  AssignBlock node{std::move(target), parse_filter_chain(nullptr), {}};
  node.body = block({"endset"});
  next();
  return node;
}

Statement::Node Parser::parse_macro() {
  next();
  auto macro = std::make_shared<MacroDefinition>();
  macro->name = any_name();
  note_store(macro->name);
  macro->parameters = parse_signature();
  macro_body(*macro, "endmacro");
  return DefineMacro{std::move(macro)};
}

Statement::Node Parser::parse_call_block() {
  next();
  auto caller = std::make_shared<MacroDefinition>();
  if (at_op("(")) caller->parameters = parse_signature();
  ExpressionPtr call = expression();
  if (!std::holds_alternative<Call>(call->node)) fail("expected a call");
  macro_body(*caller, "endcall");
  return CallBlock{std::move(call), std::move(caller)};
}

Statement::Node Parser::parse_filter_block() {
  next();
  FilterBlock node;
  node.filter = parse_filter_chain(parse_filter(nullptr));
  node.body = block({"endfilter"});
  next();
  return node;
}

Statement::Node Parser::parse_with() {
  next();
  With node;
  while (token().kind != Kind::kBlockEnd) {
    if (!node.values.empty()) expect_op(",");
    Target target = parse_target(false);
    expect_op("=");
    node.values.emplace_back(std::move(target), expression());
  }
  node.body = block({"endwith"});
  next();
  return node;
}

Statement::Node Parser::parse_print() {
  next();
  Print node;
  while (token().kind != Kind::kBlockEnd) {
    if (!node.values.empty()) expect_op(",");
    node.values.push_back(expression());
  }
  return node;
}

Statement::Node Parser::parse_generation() {
  next();
  return Generation{function_body("endgeneration")};
}

Statement::Node Parser::parse_loop_control() {
  if (breakable_ == 0) fail(str("'", token().text, "' outside loop"));
  if (next().text == "break") return Break{};
  return Continue{};
}

std::vector<Parameter> Parser::parse_signature() {
  std::vector<Parameter> parameters;
  expect_op("(");
  bool has_fallback = false;
  while (!at_op(")")) {
    if (!parameters.empty()) expect_op(",");
    Parameter parameter{any_name(), nullptr};
    for (const Parameter& other : parameters) {
      if (other.name == parameter.name) fail(str("duplicate argument '", parameter.name, "'"));
    }
    if (skip_op("=")) {
      parameter.fallback = expression();
      has_fallback = true;
    } else if (has_fallback) {
      fail("non-default argument follows default argument");
    }
    parameters.push_back(std::move(parameter));
  }
  next();
  return parameters;
}

void Parser::macro_body(MacroDefinition& macro, std::string_view end) {
  macros_.emplace_back();
  macro.body = function_body(end);
  const auto used = std::move(macros_.back().used);
  macros_.pop_back();
  const auto declared = [&](std::string_view name) -> const Parameter* {
    for (const Parameter& p : macro.parameters) {
      if (p.name == name) return &p;
    }
    return nullptr;
  };
  if (used.contains("caller")) {
    const Parameter* caller = declared("caller");
    if (caller && !caller->fallback)
      fail("the special argument 'caller' must be omitted or be given a default");
    macro.uses_caller = !caller;
  }
  macro.uses_kwargs = used.contains("kwargs") && !declared("kwargs");
  macro.uses_varargs = used.contains("varargs") && !declared("varargs");
}

// A body that is a function of its own: no loop around it can be left from within.
Body Parser::function_body(std::string_view end) {
  const int outer = std::exchange(breakable_, 0);
  Body body = block({end});
  next();
  breakable_ = outer;
  return body;
}

Target Parser::parse_target(bool with_namespace) {
  Target first = parse_single_target(with_namespace);
  if (!at_op(",")) return first;
  Target tuple;
  tuple.items.push_back(std::move(first));
  while (skip_op(",")) {
    if (at_op(")")) break;
    tuple.items.push_back(parse_single_target(with_namespace));
  }
  return tuple;
}

Target Parser::parse_single_target(bool with_namespace) {
  Level level(*this);
  if (skip_op("(")) {
    Target inner = parse_target(false);
    expect_op(")");
    return inner;
  }
  if (at_any_name({"true", "false", "none", "True", "False", "None"}))
    fail(str("can't assign to ", describe()));
  Target target;
  target.name = any_name();
  if (with_namespace && skip_op(".")) {
    target.attribute = any_name();
    note_load(target.name);
  } else {
    note_store(target.name);
  }
  return target;
}

void Parser::note_store(const std::string& name) {
  if (name == "loop" && for_depth_ > 0) fail("can't assign to special loop variable");
  for (SpecialNames& macro : macros_) macro.open.erase(name);
}

void Parser::note_load(const std::string& name) {
  for (SpecialNames& macro : macros_) {
    if (macro.open.contains(name)) macro.used.insert(name);
  }
}

ExpressionPtr Parser::expression(bool conditional) {
  Level level(*this);
  return conditional ? parse_conditional() : parse_or();
}

ExpressionPtr Parser::parse_conditional() {
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

ExpressionPtr Parser::parse_or() {
  ExpressionPtr left = parse_and();
  for (int line = token().line; skip_name("or"); line = token().line) {
    ExpressionPtr right = parse_and();
    const int h = std::max(height(left), height(right));
    left = make(line, h, Logical{false, std::move(left), std::move(right)});
  }
  return left;
}

ExpressionPtr Parser::parse_and() {
  ExpressionPtr left = parse_not();
  for (int line = token().line; skip_name("and"); line = token().line) {
    ExpressionPtr right = parse_not();
    const int h = std::max(height(left), height(right));
    left = make(line, h, Logical{true, std::move(left), std::move(right)});
  }
  return left;
}

ExpressionPtr Parser::parse_not() {
  Level level(*this);
  const int line = token().line;
  if (!skip_name("not")) return parse_compare();
  ExpressionPtr operand = parse_not();
  const int h = height(operand);
  return make(line, h, Unary{'!', std::move(operand)});
}

ExpressionPtr Parser::parse_compare() {
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

ExpressionPtr Parser::binary(int line, Arithmetic op, ExpressionPtr left,
                             ExpressionPtr right) const {
  const int h = std::max(height(left), height(right));
  return make(line, h, Binary{op, std::move(left), std::move(right)});
}

ExpressionPtr Parser::parse_sum() {
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

ExpressionPtr Parser::parse_concat() {
  const int line = token().line;
  Concat node;
  node.parts.push_back(parse_product());
  while (skip_op("~")) node.parts.push_back(parse_product());
  if (node.parts.size() == 1) return std::move(node.parts[0]);
  const int h = height(node.parts);
  return make(line, h, std::move(node));
}

ExpressionPtr Parser::parse_product() {
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

ExpressionPtr Parser::parse_power() {
  ExpressionPtr left = parse_unary();
  for (int line = token().line; skip_op("**"); line = token().line) {
    left = binary(line, Arithmetic::kPower, std::move(left), parse_unary());
  }
  return left;
}

ExpressionPtr Parser::parse_unary(bool with_filter) {
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

ExpressionPtr Parser::parse_primary() {
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
ExpressionPtr Parser::parse_tuple(bool conditional, bool parenthesized, std::string_view end) {
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

ExpressionPtr Parser::parse_list() {
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

ExpressionPtr Parser::parse_dict() {
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

ExpressionPtr Parser::parse_postfix(ExpressionPtr node) {
  for (;;) {
    if (at_op(".") || at_op("["))
      node = parse_subscript(std::move(node));
    else if (at_op("("))
      node = parse_call(std::move(node));
    else
      return node;
  }
}

ExpressionPtr Parser::parse_filters_and_tests(ExpressionPtr node) {
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

ExpressionPtr Parser::parse_subscript(ExpressionPtr node) {
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

ExpressionPtr Parser::parse_call(ExpressionPtr node) {
  const int line = token().line;
  CallArguments arguments = parse_arguments();
  const int h = std::max(height(node), height(arguments));
  return make(line, h, Call{std::move(node), std::move(arguments)});
}

std::string Parser::dotted_name() {
  std::string name = any_name();
  while (skip_op(".")) name += "." + any_name();
  return name;
}

// One filter, after the `|`.
ExpressionPtr Parser::parse_filter(ExpressionPtr node) {
  const int line = token().line;
  Filter filter{std::move(node), dotted_name(), {}};
  if (at_op("(")) filter.arguments = parse_arguments();
  const int h = std::max(height(filter.input), height(filter.arguments));
  return make(line, h, std::move(filter));
}

ExpressionPtr Parser::parse_filter_chain(ExpressionPtr node) {
  while (skip_op("|")) node = parse_filter(std::move(node));
  return node;
}

ExpressionPtr Parser::parse_test(ExpressionPtr node) {
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

CallArguments Parser::parse_arguments() {
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

}  // namespace

Body parse_template(std::string_view source) { return Parser(source).run(); }

}  // namespace temper::jinja
