// Walks a template's syntax tree and writes its text. Filters, tests and methods use it for budgets
// and operators.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "temper/text/jinja/objects.h"
#include "temper/text/jinja/parse/syntax.h"
#include "temper/text/jinja/template.h"

namespace temper::jinja {

// The variables of a block. A macro remembers the one it was defined in without keeping it alive.
struct Scope {
  Scope* parent = nullptr;
  std::unordered_map<std::string_view, Value> variables;
};

class Interpreter {
 public:
  Interpreter(const RenderOptions& options, Value context);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // Renders the whole template. Throws Failure; line() then tells where.
  Rendered run(const Body& body);
  int line() const { return line_; }

  // Counts work against the budget: steps of about the same cost, and bytes of memory made. Throws
  // OverBudget.
  void charge(size_t steps, size_t bytes = 0);
  // The text of a value, paid for.
  std::string text(const Value& value);
  // All that a value iterates over.
  Values items_of(const Value& value);

  // Python's operators on values.
  Value arithmetic(Arithmetic op, const Value& left, const Value& right);
  bool relation(Relation op, const Value& left, const Value& right);
  bool contains(const Value& container, const Value& item);
  Value negate(const Value& value, char op);

  // value.name and value[key], with jinja2's fallback from one to the other; Undefined where there
  // is neither.
  Value attribute(const Value& value, const std::string& name);
  Value item(const Value& value, const Value& key);

  Value call(const Value& callee, Arguments arguments);
  Value filter(const std::string& name, Value input, Arguments arguments);
  bool test(const std::string& name, const Value& input, Arguments arguments);
  bool has_filter(const std::string& name) const;
  bool has_test(const std::string& name) const;

  Value make_namespace(Arguments arguments);
  std::tm now() const { return options_.clock(); }
  Value call_macro(const MacroDefinition& macro, const std::shared_ptr<Scope>& scope,
                   Arguments arguments);

 private:
  enum class Flow { kNormal, kBreak, kContinue };
  class Level;
  class NewScope;
  class Capture;

  Flow run_body(const Body& body);
  Flow run_statement(const Statement& statement);
  Flow run(const Text& node);
  Flow run(const Print& node);
  Flow run(const For& node);
  Flow run(const If& node);
  Flow run(const Assign& node);
  Flow run(const AssignBlock& node);
  Flow run(const DefineMacro& node);
  Flow run(const CallBlock& node);
  Flow run(const FilterBlock& node);
  Flow run(const With& node);
  Flow run(const Generation& node);
  Flow run(const Break&) { return Flow::kBreak; }
  Flow run(const Continue&) { return Flow::kContinue; }

  Value eval(const Expression& expression);
  Value eval(const Constant& node) { return node.value; }
  Value eval(const Name& node);
  Value eval(const ListLiteral& node);
  Value eval(const TupleLiteral& node);
  Value eval(const DictLiteral& node);
  Value eval(const Attribute& node);
  Value eval(const Item& node);
  Value eval(const Slice& node);
  Value eval(const Call& node);
  Value eval(const Filter& node);
  Value eval(const Test& node);
  Value eval(const Unary& node);
  Value eval(const Binary& node);
  Value eval(const Logical& node);
  Value eval(const Concat& node);
  Value eval(const Compare& node);
  Value eval(const Conditional& node);
  Arguments eval_arguments(const CallArguments& node);
  Values eval_all(const std::vector<ExpressionPtr>& nodes);
  // Charges for a value that an operation has just made.
  Value made(Value value);

  void check_namespaces(const Target& target);
  void assign(const Target& target, Value value);
  void write(std::string_view text);

  const RenderOptions& options_;
  Value context_;
  std::shared_ptr<Scope> scope_;
  std::string* out_ = nullptr;  // where text goes: the result, or what a block captures
  std::string result_;
  const Value* captured_ = nullptr;  // the input of a filter block's filter
  std::vector<std::pair<size_t, size_t>> generations_;
  bool has_unplaced_generation_ = false;
  std::vector<std::shared_ptr<Namespace>> namespaces_;
  size_t steps_ = 0, bytes_ = 0;
  int depth_ = 0;
  int line_ = 1;
};

// The functions that every template sees, by name: range, namespace, raise_exception and so on.
Value global_value(const std::string& name);
// A method or property of a value, Undefined for those that the sandbox refuses, or nothing.
std::optional<Value> find_method(const Value& value, const std::string& name);

}  // namespace temper::jinja
