// The tests of `is`.
#include <map>

#include "temper/base/error.h"
#include "temper/text/jinja/filters/filters.h"
#include "temper/text/jinja/methods.h"
#include "temper/text/jinja/runtime.h"

namespace temper::jinja {
namespace {
void no_arguments(const char* name, Arguments arguments) { Bound(name, std::move(arguments), {}); }

template <bool (*predicate)(const Value&)>
bool simple(Runtime&, const Value& value, Arguments arguments) {
  no_arguments("test", std::move(arguments));
  return predicate(value);
}

bool is_defined(const Value& v) { return !v.is_undefined(); }
bool is_undefined(const Value& v) { return v.is_undefined(); }
bool is_none(const Value& v) { return v.is_none(); }
bool is_boolean(const Value& v) { return v.is<bool>(); }
bool is_true(const Value& v) { return v.is<bool>() && truth(v); }
bool is_false(const Value& v) { return v.is<bool>() && !truth(v); }
bool is_integer(const Value& v) { return v.is<int64_t>() || v.object<BigInteger>(); }
bool is_float(const Value& v) { return v.is<double>(); }
bool is_number(const Value& v) { return v.is_number() || v.object<BigInteger>(); }
bool is_string(const Value& v) { return v.is_string(); }
bool is_mapping(const Value& v) { return v.is_dict(); }
bool is_escaped(const Value& v) { return v.is_markup(); }
// Undefined has Python's __getitem__ and __call__, so jinja2 counts it among sequences and
// callables.
bool is_sequence(const Value& v) {
  return v.elements() || v.is_string() || v.is_dict() || v.is_undefined() || v.object<Range>();
}
bool is_callable(const Value& v) {
  return v.is_undefined() || v.object<Callable>() || v.object<Loop>();
}

template <bool upper>
bool is_case(Runtime& runtime, const Value& value, Arguments arguments) {
  no_arguments("test", std::move(arguments));
  return has_case(runtime.text(value), upper);
}

template <int remainder>
bool parity(Runtime& runtime, const Value& value, Arguments arguments) {
  no_arguments("test", std::move(arguments));
  return equal(runtime.arithmetic(Arithmetic::kModulo, value, 2), remainder);
}

bool divisible(Runtime& runtime, const Value& value, Arguments arguments) {
  const Bound bound("divisibleby", std::move(arguments), {"num"}, 1);
  return equal(runtime.arithmetic(Arithmetic::kModulo, value, bound[0]), 0);
}

template <Relation op>
bool related(Runtime& runtime, const Value& value, Arguments arguments) {
  const Bound bound("test", std::move(arguments), {"other"}, 1);
  return runtime.relation(op, value, bound[0]);
}

// Python's `is`. Texts and numbers that are equal count as the same object, as constants of one
// template are.
bool same_as(Runtime& runtime, const Value& value, Arguments arguments) {
  const Bound bound("sameas", std::move(arguments), {"other"}, 1);
  const Value& other = bound[0];
  if (value.data().index() != other.data().index()) return false;
  if (const auto* list = value.get_if<List>()) return list->data == other.get_if<List>()->data;
  if (const auto* dict = value.get_if<Dict>()) return dict->data == other.get_if<Dict>()->data;
  return runtime.relation(Relation::kEqual, value, other);
}

bool is_filter(Runtime& runtime, const Value& value, Arguments arguments) {
  no_arguments("filter", std::move(arguments));
  return value.is_string() && runtime.has_filter(value.text());
}

bool is_test(Runtime& runtime, const Value& value, Arguments arguments) {
  no_arguments("test", std::move(arguments));
  return value.is_string() && runtime.has_test(value.text());
}
}  // namespace

TestFunction find_test(const std::string& name) {
  static const std::map<std::string, TestFunction, std::less<>> tests = {
      {"defined", simple<is_defined>},
      {"undefined", simple<is_undefined>},
      {"none", simple<is_none>},
      {"boolean", simple<is_boolean>},
      {"true", simple<is_true>},
      {"false", simple<is_false>},
      {"integer", simple<is_integer>},
      {"float", simple<is_float>},
      {"number", simple<is_number>},
      {"string", simple<is_string>},
      {"mapping", simple<is_mapping>},
      {"sequence", simple<is_sequence>},
      {"iterable", simple<is_iterable>},
      {"callable", simple<is_callable>},
      {"escaped", simple<is_escaped>},
      {"lower", is_case<false>},
      {"upper", is_case<true>},
      {"odd", parity<1>},
      {"even", parity<0>},
      {"divisibleby", divisible},
      {"in", related<Relation::kIn>},
      {"sameas", same_as},
      {"filter", is_filter},
      {"test", is_test},
      {"==", related<Relation::kEqual>},
      {"eq", related<Relation::kEqual>},
      {"equalto", related<Relation::kEqual>},
      {"!=", related<Relation::kNotEqual>},
      {"ne", related<Relation::kNotEqual>},
      {">", related<Relation::kGreater>},
      {"gt", related<Relation::kGreater>},
      {"greaterthan", related<Relation::kGreater>},
      {">=", related<Relation::kGreaterEqual>},
      {"ge", related<Relation::kGreaterEqual>},
      {"<", related<Relation::kLess>},
      {"lt", related<Relation::kLess>},
      {"lessthan", related<Relation::kLess>},
      {"<=", related<Relation::kLessEqual>},
      {"le", related<Relation::kLessEqual>},
  };
  const auto found = tests.find(name);
  return found == tests.end() ? nullptr : found->second;
}

}  // namespace temper::jinja
