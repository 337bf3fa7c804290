#include "temper/text/jinja/interpreter.h"

#include <algorithm>

#include "temper/base/error.h"
#include "temper/text/jinja/filters/filters.h"
#include "temper/text/jinja/sequences.h"

namespace temper::jinja {
namespace {
// The deepest recursion, of walking the tree and of macros calling macros. With it the stack needs
// less than 2 MiB.
constexpr int kMaxCallDepth = 1200;
}  // namespace

class Interpreter::Level {
 public:
  explicit Level(Interpreter& interpreter) : depth_(interpreter.depth_) {
    if (++depth_ > kMaxCallDepth) {
      --depth_;
      throw OverBudget("maximum recursion depth exceeded");
    }
  }
  ~Level() { --depth_; }

 private:
  int& depth_;
};

// A scope inside the current one (or inside a macro's), for as long as it lives.
class Interpreter::NewScope {
 public:
  explicit NewScope(Interpreter& interpreter) : NewScope(interpreter, interpreter.scope_) {}
  NewScope(Interpreter& interpreter, std::shared_ptr<Scope> parent)
      : interpreter_(interpreter), parent_(std::move(parent)), outer_(interpreter.scope_) {
    interpreter.scope_ = std::make_shared<Scope>();
    interpreter.scope_->parent = parent_.get();
  }
  ~NewScope() { interpreter_.scope_ = outer_; }

 private:
  Interpreter& interpreter_;
  std::shared_ptr<Scope> parent_, outer_;
};

// Captures the output written while the object lives.
class Interpreter::Capture {
 public:
  explicit Capture(Interpreter& interpreter) : interpreter_(interpreter), outer_(interpreter.out_) {
    interpreter.out_ = &text_;
  }
  ~Capture() { interpreter_.out_ = outer_; }
  std::string take() { return std::move(text_); }

 private:
  Interpreter& interpreter_;
  std::string* outer_;
  std::string text_;
};

namespace {
class MacroFunction final : public Callable {
 public:
  MacroFunction(std::shared_ptr<const MacroDefinition> definition, std::weak_ptr<Scope> scope)
      : definition_(std::move(definition)), scope_(std::move(scope)) {}
  std::string type_name() const override { return "Macro"; }
  std::string repr() const override { return "<Macro " + string_repr(definition_->name) + ">"; }
  const MacroDefinition& definition() const { return *definition_; }
  Value call(Interpreter& interpreter, Arguments arguments) override {
    const auto scope = scope_.lock();
    if (!scope)
      throw Failure(
          str("macro '", definition_->name, "' called after the block that defined it has ended"));
    return interpreter.call_macro(*definition_, scope, std::move(arguments));
  }

 private:
  std::shared_ptr<const MacroDefinition> definition_;
  std::weak_ptr<Scope> scope_;
};
}  // namespace

Interpreter::Interpreter(const RenderOptions& options, Value context)
    : options_(options),
      context_(std::move(context)),
      scope_(std::make_shared<Scope>()),
      out_(&result_) {}

Interpreter::~Interpreter() {
  for (const auto& ns : namespaces_) ns->clear();
}

Rendered Interpreter::run(const Body& body) {
  run_body(body);
  return {std::move(result_), std::move(generations_), has_unplaced_generation_};
}

void Interpreter::charge(size_t steps, size_t bytes) {
  steps_ = saturating_add(steps_, steps);
  bytes_ = saturating_add(bytes_, bytes);
  if (steps_ > options_.max_steps)
    throw OverBudget("rendering takes too many steps; does the template loop without end?");
  if (bytes_ > options_.max_bytes) throw OverBudget("rendering takes too much memory");
}

std::string Interpreter::text(const Value& value) {
  if (auto* ns = value.object<Namespace>()) {
    charge(ns->total_weight());
    return ns->long_repr();
  }
  const size_t cost = weight(value);
  charge(cost);
  std::string out = to_text(value);
  charge(0, out.size());
  return out;
}

Values Interpreter::items_of(const Value& value) {
  Values items;
  Cursor cursor(value);
  for (Value item; cursor.next(item);) {
    charge(1, sizeof(Value));
    items.push_back(std::move(item));
  }
  return items;
}

void Interpreter::write(std::string_view text) {
  if (out_->size() + text.size() > options_.max_output) {
    throw OverBudget(str("output larger than ", options_.max_output, " bytes"));
  }
  charge(text.size() / 64);
  out_->append(text);
}

Value Interpreter::made(Value value) {
  if (value.is_string()) charge(0, value.text().size());
  if (const Values* items = value.elements()) charge(0, items->size() * sizeof(Value));
  return value;
}

Value Interpreter::make_namespace(Arguments arguments) {
  auto ns = std::make_shared<Namespace>();
  charge(0, 256);
  namespaces_.push_back(ns);
  Value initial = global_value("dict").object<Callable>()->call(*this, std::move(arguments));
  for (const auto& [key, value] : initial.get_if<Dict>()->data->pairs) {
    if (key.is_string()) ns->set(key.text(), value);
  }
  return Value(std::move(ns));
}

// ------------------------------------------------------------------------------------------------
// statements

Interpreter::Flow Interpreter::run_body(const Body& body) {
  Level level(*this);
  for (const Statement& statement : body) {
    const Flow flow = run_statement(statement);
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::run_statement(const Statement& statement) {
  line_ = statement.line;
  charge(1);
  return std::visit([this](const auto& node) { return run(node); }, statement.node);
}

Interpreter::Flow Interpreter::run(const Text& node) {
  write(node.text);
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::run(const Print& node) {
  for (const ExpressionPtr& value : node.values) write(text(eval(*value)));
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::run(const For& node) {
  const Value iterable = eval(*node.iterable);
  Loop::Test test;
  if (node.test) {
    // In the scope around the loop, wherever the body peeks at the next item.
    test = [this, &node, outer = scope_](const Value& item) {
      NewScope scope(*this, outer);
      assign(node.target, item);
      return truth(eval(*node.test));
    };
  }
  const auto loop = std::make_shared<Loop>(iterable, std::move(test));
  struct Ending {
    Loop& loop;
    ~Ending() { loop.end(); }
  } ending{*loop};

  bool any = false;
  for (Value item; loop->advance(item);) {
    any = true;
    charge(1);
    NewScope scope(*this);
    scope_->variables["loop"] = Value(loop);
    assign(node.target, std::move(item));
    if (run_body(node.body) == Flow::kBreak) break;
  }
  if (any || node.otherwise.empty()) return Flow::kNormal;
  NewScope scope(*this);
  return run_body(node.otherwise);
}

Interpreter::Flow Interpreter::run(const If& node) {
  for (const auto& [test, body] : node.branches) {
    if (truth(eval(*test))) return run_body(body);
  }
  return run_body(node.otherwise);
}

Interpreter::Flow Interpreter::run(const Assign& node) {
  check_namespaces(node.target);
  assign(node.target, eval(*node.value));
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::run(const AssignBlock& node) {
  Value value;
  Flow flow;
  {
    NewScope scope(*this);
    Capture capture(*this);
    flow = run_body(node.body);
    if (flow != Flow::kNormal) return flow;
    value = made(Value(capture.take()));
    if (node.filter) {
      const Value* outer = std::exchange(captured_, &value);
      Value filtered = eval(*node.filter);
      captured_ = outer;
      value = std::move(filtered);
    }
  }
  check_namespaces(node.target);
  assign(node.target, std::move(value));
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::run(const DefineMacro& node) {
  scope_->variables[node.macro->name] = Value(std::make_shared<MacroFunction>(node.macro, scope_));
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::run(const CallBlock& node) {
  const Call& call_node = std::get<Call>(node.call->node);
  const Value callee = eval(*call_node.callee);
  Arguments arguments = eval_arguments(call_node.arguments);
  arguments.named.emplace_back("caller",
                               Value(std::make_shared<MacroFunction>(node.caller, scope_)));
  write(text(call(callee, std::move(arguments))));
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::run(const FilterBlock& node) {
  Value filtered;
  {
    NewScope scope(*this);
    Capture capture(*this);
    const Flow flow = run_body(node.body);
    if (flow != Flow::kNormal) return flow;
    const Value value = made(Value(capture.take()));
    const Value* outer = std::exchange(captured_, &value);
    filtered = eval(*node.filter);
    captured_ = outer;
  }
  write(text(filtered));
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::run(const With& node) {
  std::vector<Value> values;
  for (const auto& [target, value] : node.values) values.push_back(eval(*value));
  NewScope scope(*this);
  for (size_t i = 0; i < values.size(); ++i) assign(node.values[i].first, std::move(values[i]));
  return run_body(node.body);
}

Interpreter::Flow Interpreter::run(const Generation& node) {
  const bool placed = out_ == &result_;
  std::string written;
  {
    NewScope scope(*this);
    Capture capture(*this);
    run_body(node.body);
    written = capture.take();
  }
  if (placed)
    generations_.emplace_back(out_->size(), out_->size() + written.size());
  else
    has_unplaced_generation_ = true;
  write(written);
  return Flow::kNormal;
}

// An assignment to an attribute needs a namespace, whatever the value.
void Interpreter::check_namespaces(const Target& target) {
  for (const Target& item : target.items) check_namespaces(item);
  if (target.attribute.empty()) return;
  if (!eval(Name{target.name}).object<Namespace>())
    throw Failure("cannot assign attribute on non-namespace object");
}

void Interpreter::assign(const Target& target, Value value) {
  if (!target.attribute.empty()) {
    charge(0, 64);
    eval(Name{target.name}).object<Namespace>()->set(target.attribute, std::move(value));
  } else if (!target.name.empty()) {
    scope_->variables[target.name] = std::move(value);
  } else {
    Values items = items_of(value);
    if (items.size() != target.items.size()) {
      throw Failure(str("cannot unpack ", items.size(), " values into ", target.items.size()));
    }
    for (size_t i = 0; i < items.size(); ++i) assign(target.items[i], std::move(items[i]));
  }
}

// ------------------------------------------------------------------------------------------------
// expressions

Value Interpreter::eval(const Expression& expression) {
  Level level(*this);
  charge(1);
  line_ = expression.line;
  return std::visit([this](const auto& node) { return eval(node); }, expression.node);
}

Value Interpreter::eval(const Name& node) {
  for (const Scope* scope = scope_.get(); scope; scope = scope->parent) {
    const auto found = scope->variables.find(node.name);
    if (found != scope->variables.end()) return found->second;
  }
  if (const Value* value = context_.get_if<Dict>()->data->find_text(node.name)) return *value;
  return global_value(node.name);
}

Values Interpreter::eval_all(const std::vector<ExpressionPtr>& nodes) {
  Values values;
  values.reserve(nodes.size());
  for (const ExpressionPtr& node : nodes) values.push_back(eval(*node));
  return values;
}

Value Interpreter::eval(const ListLiteral& node) { return made(make_list(eval_all(node.items))); }
Value Interpreter::eval(const TupleLiteral& node) { return made(make_tuple(eval_all(node.items))); }

Value Interpreter::eval(const DictLiteral& node) {
  Pairs pairs;
  for (const auto& [key, value] : node.items) {
    Value k = eval(*key);
    charge(weight(k), 2 * sizeof(Value));
    pairs.emplace_back(std::move(k), eval(*value));
  }
  return make_dict(std::move(pairs));
}

Value Interpreter::eval(const Attribute& node) { return attribute(eval(*node.object), node.name); }

Value Interpreter::eval(const Item& node) {
  const Value object = eval(*node.object);
  return item(object, eval(*node.key));
}

Value Interpreter::eval(const Slice& node) {
  const Value object = eval(*node.object);
  const auto bound = [&](const ExpressionPtr& e) -> std::optional<int64_t> {
    if (!e) return std::nullopt;
    const Value value = eval(*e);
    if (value.is_none()) return std::nullopt;
    if (!value.is_integral()) throw Failure("slice indices must be integers or None");
    return value.integer();
  };
  const auto start = bound(node.start), stop = bound(node.stop), step = bound(node.step);
  charge(length_of(object).value_or(0) / 16);
  return made(slice(object, start, stop, step.value_or(1)));
}

Arguments Interpreter::eval_arguments(const CallArguments& node) {
  Arguments arguments{eval_all(node.positional), {}};
  for (const auto& [name, value] : node.named) arguments.named.emplace_back(name, eval(*value));
  if (node.star) {
    Values more = items_of(eval(*node.star));
    std::move(more.begin(), more.end(), std::back_inserter(arguments.positional));
  }
  if (node.double_star) {
    const Value more = eval(*node.double_star);
    if (!more.is_dict())
      throw Failure(str("argument after ** must be a mapping, not ", type_name(more)));
    for (const auto& [key, value] : more.get_if<Dict>()->data->pairs) {
      if (!key.is_string()) throw Failure("keywords must be strings");
      charge(1 + arguments.named.size() / 16, sizeof(Value));
      for (const auto& named : arguments.named) {
        if (named.first == key.text())
          throw Failure(str("got multiple values for keyword argument '", key.text(), "'"));
      }
      arguments.named.emplace_back(key.text(), value);
    }
  }
  return arguments;
}

Value Interpreter::eval(const Call& node) {
  const int line = line_;
  const Value callee = eval(*node.callee);
  Arguments arguments = eval_arguments(node.arguments);
  line_ = line;
  return made(call(callee, std::move(arguments)));
}

Value Interpreter::eval(const Filter& node) {
  const int line = line_;
  Value input = node.input ? eval(*node.input) : *captured_;
  Arguments arguments = eval_arguments(node.arguments);
  line_ = line;
  return made(filter(node.name, std::move(input), std::move(arguments)));
}

Value Interpreter::eval(const Test& node) {
  const int line = line_;
  const Value input = eval(*node.input);
  Arguments arguments = eval_arguments(node.arguments);
  line_ = line;
  return test(node.name, input, std::move(arguments));
}

Value Interpreter::eval(const Unary& node) {
  const Value operand = eval(*node.operand);
  return node.op == '!' ? Value(!truth(operand)) : negate(operand, node.op);
}

Value Interpreter::eval(const Binary& node) {
  const int line = line_;
  const Value left = eval(*node.left);
  const Value right = eval(*node.right);
  line_ = line;
  return made(arithmetic(node.op, left, right));
}

Value Interpreter::eval(const Logical& node) {
  Value left = eval(*node.left);
  return truth(left) == node.is_and ? eval(*node.right) : left;
}

Value Interpreter::eval(const Concat& node) {
  std::string out;
  for (const ExpressionPtr& part : node.parts) out += text(eval(*part));
  return made(Value(std::move(out)));
}

Value Interpreter::eval(const Compare& node) {
  Value left = eval(*node.first);
  for (const auto& [op, expression] : node.rest) {
    Value right = eval(*expression);
    if (!relation(op, left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Value Interpreter::eval(const Conditional& node) {
  if (truth(eval(*node.test))) return eval(*node.then);
  if (node.otherwise) return eval(*node.otherwise);
  return make_undefined(
      "the inline if-expression evaluated to false and no else section was defined");
}

// ------------------------------------------------------------------------------------------------
// look-ups, calls

Value Interpreter::attribute(const Value& value, const std::string& name) {
  if (const auto* undefined = value.get_if<Undefined>()) throw Failure(*undefined->message);
  if (auto method = find_method(value, name)) return *method;
  if (const auto* dict = value.get_if<Dict>()) {
    if (const Value* found = dict->data->find_text(name)) return *found;
  }
  return make_undefined(str("'", type_name(value), " object' has no attribute '", name, "'"));
}

Value Interpreter::item(const Value& value, const Value& key) {
  if (const auto* undefined = value.get_if<Undefined>()) throw Failure(*undefined->message);
  if (const auto* dict = value.get_if<Dict>()) {
    charge(weight(key));
    const bool hashable = !key.is<List>() && !key.is_dict();
    if (const Value* found = hashable ? dict->data->find(key) : nullptr) return *found;
  } else if (key.is_integral()) {
    charge(value.is_string() ? value.text().size() / 16 : 0);
    if (auto found = element(value, key.integer())) return *found;
  }
  if (key.is_string()) {
    if (auto method = find_method(value, key.text())) return *method;
    return make_undefined(
        str("'", type_name(value), " object' has no attribute '", key.text(), "'"));
  }
  return make_undefined(str(type_name(value), " object has no element of that index"));
}

Value Interpreter::call(const Value& callee, Arguments arguments) {
  if (const auto* undefined = callee.get_if<Undefined>()) throw Failure(*undefined->message);
  auto* callable = callee.object<Callable>();
  if (!callable) throw Failure(str("'", type_name(callee), "' object is not callable"));
  return callable->call(*this, std::move(arguments));
}

// Macro.__call__: positional arguments first, then by name; caller, kwargs and varargs when the
// body reads them.
Value Interpreter::call_macro(const MacroDefinition& macro,
                              const std::shared_ptr<Scope>& defined_in, Arguments arguments) {
  Level level(*this);
  NewScope scope(*this, defined_in);
  auto& variables = scope_->variables;
  const auto take_named = [&](const std::string& name) -> std::optional<Value> {
    for (auto it = arguments.named.begin(); it != arguments.named.end(); ++it) {
      if (it->first != name) continue;
      Value value = std::move(it->second);
      arguments.named.erase(it);
      return value;
    }
    return std::nullopt;
  };

  std::vector<const Parameter*> missing;
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    const Parameter& parameter = macro.parameters[i];
    std::optional<Value> value;
    if (i < arguments.positional.size())
      value = arguments.positional[i];
    else
      value = take_named(parameter.name);
    if (!value) missing.push_back(&parameter);
    variables[parameter.name] =
        value ? std::move(*value)
              : make_undefined(str("parameter '", parameter.name, "' was not provided"));
  }
  if (macro.uses_caller) {
    variables["caller"] = take_named("caller").value_or(make_undefined("No caller defined"));
  }
  if (macro.uses_kwargs) {
    Pairs pairs;
    for (auto& [name, value] : arguments.named) pairs.emplace_back(Value(name), std::move(value));
    variables["kwargs"] = make_dict(std::move(pairs));
  } else if (!arguments.named.empty()) {
    throw Failure(
        str("macro '", macro.name, "' takes no keyword argument '", arguments.named[0].first, "'"));
  }
  const size_t taken = std::min(arguments.positional.size(), macro.parameters.size());
  if (macro.uses_varargs) {
    variables["varargs"] =
        make_tuple(Values(arguments.positional.begin() + static_cast<std::ptrdiff_t>(taken),
                          arguments.positional.end()));
  } else if (arguments.positional.size() > taken) {
    throw Failure(str("macro '", macro.name, "' takes not more than ", macro.parameters.size(),
                      " argument(s)"));
  }
  for (const Parameter* parameter : missing) {
    if (parameter->fallback) variables[parameter->name] = eval(*parameter->fallback);
  }

  Capture capture(*this);
  run_body(macro.body);
  return made(Value(capture.take()));
}

Value Interpreter::filter(const std::string& name, Value input, Arguments arguments) {
  const FilterFunction function = find_filter(name);
  if (!function) throw Failure(str("no filter named '", name, "'"));
  charge(1 + length_cost(input));
  return function(*this, std::move(input), std::move(arguments));
}

bool Interpreter::test(const std::string& name, const Value& input, Arguments arguments) {
  const TestFunction function = find_test(name);
  if (!function) throw Failure(str("no test named '", name, "'"));
  charge(1 + length_cost(input));
  return function(*this, input, std::move(arguments));
}

bool Interpreter::has_filter(const std::string& name) const { return find_filter(name) != nullptr; }
bool Interpreter::has_test(const std::string& name) const { return find_test(name) != nullptr; }

}  // namespace temper::jinja
