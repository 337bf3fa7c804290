// The syntax tree of a template: what the parser makes and the interpreter walks.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "temper/text/jinja/value.h"

namespace temper::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;
struct Statement;
using Body = std::vector<Statement>;

struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr star;         // *args, or null
  ExpressionPtr double_star;  // **kwargs, or null
};

struct Constant {
  Value value;
};
struct Name {
  std::string name;
};
struct ListLiteral {
  std::vector<ExpressionPtr> items;
};
struct TupleLiteral {
  std::vector<ExpressionPtr> items;
};
struct DictLiteral {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> items;
};
struct Attribute {
  ExpressionPtr object;
  std::string name;
};
struct Item {
  ExpressionPtr object, key;
};
struct Slice {
  ExpressionPtr object, start, stop, step;  // the last three may be null
};
struct Call {
  ExpressionPtr callee;
  CallArguments arguments;
};
struct Filter {
  ExpressionPtr input;  // null: the text captured by a filter block or a block assignment
  std::string name;
  CallArguments arguments;
};
struct Test {
  ExpressionPtr input;
  std::string name;
  CallArguments arguments;
};
struct Unary {
  char op;  // + - !
  ExpressionPtr operand;
};
enum class Arithmetic { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };
struct Binary {
  Arithmetic op;
  ExpressionPtr left, right;
};
struct Logical {
  bool is_and;
  ExpressionPtr left, right;
};
struct Concat {
  std::vector<ExpressionPtr> parts;
};
enum class Relation { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };
struct Compare {
  ExpressionPtr first;
  std::vector<std::pair<Relation, ExpressionPtr>> rest;
};
struct Conditional {
  ExpressionPtr test, then, otherwise;  // otherwise may be null
};

struct Expression {
  using Node =
      std::variant<Constant, Name, ListLiteral, TupleLiteral, DictLiteral, Attribute, Item, Slice,
                   Call, Filter, Test, Unary, Binary, Logical, Concat, Compare, Conditional>;
  int line;
  int height;  // 1 for a leaf; bounded by the parser, so that walking the tree cannot exhaust the
               // stack
  Node node;
};

// The left side of an assignment: a name, an attribute of a namespace, or a tuple of those.
struct Target {
  std::string name;
  std::string attribute;      // not empty: `name.attribute`
  std::vector<Target> items;  // used when `name` is empty
};

struct Parameter {
  std::string name;
  ExpressionPtr fallback;  // null: required
};

// A macro, or the body of a call block. What `uses` says decides which special arguments it takes.
struct MacroDefinition {
  std::string name;
  std::vector<Parameter> parameters;
  Body body;
  bool uses_caller = false, uses_kwargs = false, uses_varargs = false;
};

struct Text {
  std::string text;
};
struct Print {
  std::vector<ExpressionPtr> values;
};
struct For {
  Target target;
  ExpressionPtr iterable;
  ExpressionPtr test;  // null: every item
  Body body, otherwise;
};
struct If {
  std::vector<std::pair<ExpressionPtr, Body>> branches;
  Body otherwise;
};
struct Assign {
  Target target;
  ExpressionPtr value;
};
struct AssignBlock {
  Target target;
  ExpressionPtr filter;  // a chain of Filter whose innermost input is null; or null
  Body body;
};
struct DefineMacro {
  std::shared_ptr<const MacroDefinition> macro;
};
struct CallBlock {
  ExpressionPtr call;
  std::shared_ptr<const MacroDefinition> caller;
};
struct FilterBlock {
  ExpressionPtr filter;
  Body body;
};
struct With {
  std::vector<std::pair<Target, ExpressionPtr>> values;
  Body body;
};
struct Generation {
  Body body;
};
struct Break {};
struct Continue {};

struct Statement {
  using Node = std::variant<Text, Print, For, If, Assign, AssignBlock, DefineMacro, CallBlock,
                            FilterBlock, With, Generation, Break, Continue>;
  int line;
  Node node;
};

// Parses a template. Throws SyntaxFailure: for what jinja2 refuses as well, for the tags that need
// other files (extends, include, import, block), and for nesting beyond any real template's.
Body parse_template(std::string_view source);

}  // namespace temper::jinja
