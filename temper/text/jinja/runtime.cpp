#include "temper/text/jinja/runtime.h"

#include "temper/base/error.h"
#include "temper/text/jinja/filters/filters.h"
#include "temper/text/jinja/sequences.h"

namespace temper::jinja {
namespace {
// The deepest recursion, of walking the tree and of macros calling macros. With it the stack needs
// less than 2 MiB.
constexpr int kMaxCallDepth = 1200;
}  // namespace

Runtime::Level::Level(Runtime& runtime) : depth_(runtime.depth_) {
  if (++depth_ > kMaxCallDepth) {
    --depth_;
    throw OverBudget("maximum recursion depth exceeded");
  }
}

Runtime::~Runtime() {
  for (const auto& ns : namespaces_) ns->clear();
}

void Runtime::charge(size_t steps, size_t bytes) {
  steps_ = saturating_add(steps_, steps);
  bytes_ = saturating_add(bytes_, bytes);
  if (steps_ > options_.max_steps)
    throw OverBudget("rendering takes too many steps; does the template loop without end?");
  if (bytes_ > options_.max_bytes) throw OverBudget("rendering takes too much memory");
}

std::string Runtime::text(const Value& value) {
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

Values Runtime::items_of(const Value& value) {
  Values items;
  Cursor cursor(value);
  for (Value item; cursor.next(item);) {
    charge(1, sizeof(Value));
    items.push_back(std::move(item));
  }
  return items;
}

Value Runtime::made(Value value) {
  if (value.is_string()) charge(0, value.text().size());
  if (const Values* items = value.elements()) charge(0, items->size() * sizeof(Value));
  return value;
}

Value Runtime::make_namespace(Arguments arguments) {
  auto ns = std::make_shared<Namespace>();
  charge(0, 256);
  namespaces_.push_back(ns);
  Value initial = global_value("dict").object<Callable>()->call(*this, std::move(arguments));
  for (const auto& [key, value] : initial.get_if<Dict>()->data->pairs) {
    if (key.is_string()) ns->set(key.text(), value);
  }
  return Value(std::move(ns));
}

Value Runtime::attribute(const Value& value, const std::string& name) {
  if (const auto* undefined = value.get_if<Undefined>()) throw Failure(*undefined->message);
  if (auto method = find_method(value, name)) return *method;
  if (const auto* dict = value.get_if<Dict>()) {
    if (const Value* found = dict->data->find_text(name)) return *found;
  }
  return make_undefined(str("'", type_name(value), " object' has no attribute '", name, "'"));
}

Value Runtime::item(const Value& value, const Value& key) {
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

Value Runtime::call(const Value& callee, Arguments arguments) {
  if (const auto* undefined = callee.get_if<Undefined>()) throw Failure(*undefined->message);
  auto* callable = callee.object<Callable>();
  if (!callable) throw Failure(str("'", type_name(callee), "' object is not callable"));
  return callable->call(*this, std::move(arguments));
}

Value Runtime::filter(const std::string& name, Value input, Arguments arguments) {
  const FilterFunction function = find_filter(name);
  if (!function) throw Failure(str("no filter named '", name, "'"));
  charge(1 + length_cost(input));
  return function(*this, std::move(input), std::move(arguments));
}

bool Runtime::test(const std::string& name, const Value& input, Arguments arguments) {
  const TestFunction function = find_test(name);
  if (!function) throw Failure(str("no test named '", name, "'"));
  charge(1 + length_cost(input));
  return function(*this, input, std::move(arguments));
}

bool Runtime::has_filter(const std::string& name) const { return find_filter(name) != nullptr; }
bool Runtime::has_test(const std::string& name) const { return find_test(name) != nullptr; }

}  // namespace temper::jinja
