// Statements, and the names that they assign.
#include <initializer_list>
#include <utility>

#include "temper/text/jinja/parse/expressions.h"
#include "temper/text/jinja/parse/syntax.h"

namespace temper::jinja {
namespace {

class Parser : private ExpressionParser {
 public:
  explicit Parser(std::string_view source) : ExpressionParser(source) {}

  Body run() { return statements({}); }

 private:
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

  int for_depth_ = 0;  // enclosing for statements, in which `loop` may not be assigned
  int breakable_ = 0;  // enclosing loops that break and continue could leave
};

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

}  // namespace

Body parse_template(std::string_view source) { return Parser(source).run(); }

}  // namespace temper::jinja
