// Evaluates the expressions of a template.
#pragma once

#include <vector>

#include "temper/text/jinja/parse/syntax.h"
#include "temper/text/jinja/runtime.h"
#include "temper/text/jinja/variables.h"

namespace temper::jinja {

class Evaluator {
 public:
  // Both outlive the evaluator.
  Evaluator(Runtime& runtime, const Variables& variables)
      : runtime_(runtime), variables_(variables) {}

  // Throw Failure.
  Value eval(const Expression& expression);
  // A filter without an input of its own, applied to the text that a block captured.
  Value eval_filter(const Expression& filter, const Value& input);
  Arguments eval_arguments(const CallArguments& node);

 private:
  Value eval(const Constant& node) { return node.value; }
  Value eval(const Name& node) { return variables_.find(node.name); }
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
  Values eval_all(const std::vector<ExpressionPtr>& nodes);

  Runtime& runtime_;
  const Variables& variables_;
  const Value* captured_ = nullptr;  // the input of eval_filter()
};

}  // namespace temper::jinja
