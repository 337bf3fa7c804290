#include "temper/text/jinja/interpreter.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <variant>

#include "temper/base/error.h"

namespace temper::jinja {

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

class Interpreter::Macro final : public Callable {
 public:
  Macro(Interpreter& interpreter, std::shared_ptr<const MacroDefinition> definition,
        std::weak_ptr<Scope> scope)
      : interpreter_(interpreter), definition_(std::move(definition)), scope_(std::move(scope)) {}
  std::string type_name() const override { return "Macro"; }
  std::string repr() const override { return "<Macro " + string_repr(definition_->name) + ">"; }
  Value call(Runtime&, Arguments arguments) override {
    const auto scope = scope_.lock();
    if (!scope)
      throw Failure(
          str("macro '", definition_->name, "' called after the block that defined it has ended"));
    return interpreter_.call_macro(*definition_, scope, std::move(arguments));
  }

 private:
  Interpreter& interpreter_;
  std::shared_ptr<const MacroDefinition> definition_;
  std::weak_ptr<Scope> scope_;
};

Interpreter::Interpreter(const RenderOptions& options, Value context)
    : options_(options),
      runtime_(options),
      variables_(std::move(context)),
      evaluator_(runtime_, variables_) {}

Rendered Interpreter::run(const Body& body) {
  run_body(body);
  return {std::move(result_), std::move(generations_), has_unplaced_generation_};
}

void Interpreter::write(std::string_view text) {
  if (out_->size() + text.size() > options_.max_output) {
    throw OverBudget(str("output larger than ", options_.max_output, " bytes"));
  }
  runtime_.charge(text.size() / 64);
  out_->append(text);
}

Interpreter::Flow Interpreter::run_body(const Body& body) {
  Runtime::Level level(runtime_);
  for (const Statement& statement : body) {
    const Flow flow = run_statement(statement);
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::run_statement(const Statement& statement) {
  runtime_.set_line(statement.line);
  runtime_.charge(1);
  return std::visit([this](const auto& node) { return run(node); }, statement.node);
}

Interpreter::Flow Interpreter::run(const Text& node) {
  write(node.text);
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::run(const Print& node) {
  for (const ExpressionPtr& value : node.values) write(runtime_.text(evaluator_.eval(*value)));
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::run(const For& node) {
  const Value iterable = evaluator_.eval(*node.iterable);
  Loop::Test test;
  if (node.test) {
    // In the scope around the loop, wherever the body peeks at the next item.
    test = [this, &node, outer = variables_.scope()](const Value& item) {
      NewScope scope(variables_, outer);
      assign(node.target, item);
      return truth(evaluator_.eval(*node.test));
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
    runtime_.charge(1);
    NewScope scope(variables_);
    variables_.set("loop", Value(loop));
    assign(node.target, std::move(item));
    if (run_body(node.body) == Flow::kBreak) break;
  }
  if (any || node.otherwise.empty()) return Flow::kNormal;
  NewScope scope(variables_);
  return run_body(node.otherwise);
}

Interpreter::Flow Interpreter::run(const If& node) {
  for (const auto& [test, body] : node.branches) {
    if (truth(evaluator_.eval(*test))) return run_body(body);
  }
  return run_body(node.otherwise);
}

Interpreter::Flow Interpreter::run(const Assign& node) {
  check_namespaces(node.target);
  assign(node.target, evaluator_.eval(*node.value));
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::run(const AssignBlock& node) {
  Value value;
  Flow flow;
  {
    NewScope scope(variables_);
    Capture capture(*this);
    flow = run_body(node.body);
    if (flow != Flow::kNormal) return flow;
    value = runtime_.made(Value(capture.take()));
    if (node.filter) value = evaluator_.eval_filter(*node.filter, value);
  }
  check_namespaces(node.target);
  assign(node.target, std::move(value));
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::run(const DefineMacro& node) {
  variables_.set(node.macro->name,
                 Value(std::make_shared<Macro>(*this, node.macro, variables_.scope())));
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::run(const CallBlock& node) {
  const Call& call_node = std::get<Call>(node.call->node);
  const Value callee = evaluator_.eval(*call_node.callee);
  Arguments arguments = evaluator_.eval_arguments(call_node.arguments);
  arguments.named.emplace_back(
      "caller", Value(std::make_shared<Macro>(*this, node.caller, variables_.scope())));
  write(runtime_.text(runtime_.call(callee, std::move(arguments))));
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::run(const FilterBlock& node) {
  Value filtered;
  {
    NewScope scope(variables_);
    Capture capture(*this);
    const Flow flow = run_body(node.body);
    if (flow != Flow::kNormal) return flow;
    const Value value = runtime_.made(Value(capture.take()));
    filtered = evaluator_.eval_filter(*node.filter, value);
  }
  write(runtime_.text(filtered));
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::run(const With& node) {
  std::vector<Value> values;
  for (const auto& [target, value] : node.values) values.push_back(evaluator_.eval(*value));
  NewScope scope(variables_);
  for (size_t i = 0; i < values.size(); ++i) assign(node.values[i].first, std::move(values[i]));
  return run_body(node.body);
}

Interpreter::Flow Interpreter::run(const Generation& node) {
  const bool placed = out_ == &result_;
  std::string written;
  {
    NewScope scope(variables_);
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
  if (!variables_.find(target.name).object<Namespace>())
    throw Failure("cannot assign attribute on non-namespace object");
}

void Interpreter::assign(const Target& target, Value value) {
  if (!target.attribute.empty()) {
    runtime_.charge(0, 64);
    variables_.find(target.name).object<Namespace>()->set(target.attribute, std::move(value));
  } else if (!target.name.empty()) {
    variables_.set(target.name, std::move(value));
  } else {
    Values items = runtime_.items_of(value);
    if (items.size() != target.items.size()) {
      throw Failure(str("cannot unpack ", items.size(), " values into ", target.items.size()));
    }
    for (size_t i = 0; i < items.size(); ++i) assign(target.items[i], std::move(items[i]));
  }
}

Value Interpreter::call_macro(const MacroDefinition& macro,
                              const std::shared_ptr<Scope>& defined_in, Arguments arguments) {
  Runtime::Level level(runtime_);
  NewScope scope(variables_, defined_in);
  bind_parameters(macro, std::move(arguments));
  Capture capture(*this);
  run_body(macro.body);
  return runtime_.made(Value(capture.take()));
}

// As Macro.__call__: positional arguments first, then by name; caller, kwargs and varargs when the
// body reads them.
void Interpreter::bind_parameters(const MacroDefinition& macro, Arguments arguments) {
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
    variables_.set(parameter.name, value ? std::move(*value)
                                         : make_undefined(str("parameter '", parameter.name,
                                                              "' was not provided")));
  }
  if (macro.uses_caller) {
    variables_.set("caller", take_named("caller").value_or(make_undefined("No caller defined")));
  }
  if (macro.uses_kwargs) {
    Pairs pairs;
    for (auto& [name, value] : arguments.named) pairs.emplace_back(Value(name), std::move(value));
    variables_.set("kwargs", make_dict(std::move(pairs)));
  } else if (!arguments.named.empty()) {
    throw Failure(
        str("macro '", macro.name, "' takes no keyword argument '", arguments.named[0].first, "'"));
  }
  const size_t taken = std::min(arguments.positional.size(), macro.parameters.size());
  if (macro.uses_varargs) {
    variables_.set("varargs", make_tuple(Values(
                                  arguments.positional.begin() + static_cast<std::ptrdiff_t>(taken),
                                  arguments.positional.end())));
  } else if (arguments.positional.size() > taken) {
    throw Failure(str("macro '", macro.name, "' takes not more than ", macro.parameters.size(),
                      " argument(s)"));
  }
  for (const Parameter* parameter : missing) {
    if (parameter->fallback) variables_.set(parameter->name, evaluator_.eval(*parameter->fallback));
  }
}

}  // namespace temper::jinja
