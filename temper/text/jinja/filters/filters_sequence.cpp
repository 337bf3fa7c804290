#include <algorithm>

#include "temper/base/error.h"
#include "temper/text/jinja/filters/filter_functions.h"
#include "temper/text/jinja/runtime.h"
#include "temper/text/jinja/sequences.h"

namespace temper::jinja::filters {
namespace {
// The iterator that a generator function returns: the items that `make` adds until it returns, and
// the error that ends it, which is raised when the items before it have been taken.
template <class Make>
Value generator(Make make) {
  Values items;
  std::optional<std::string> failure;
  try {
    make(items);
  } catch (const OverBudget&) {
    throw;
  } catch (const Failure& e) {
    failure = e.what();
  }
  return Value(std::make_shared<Iterator>(std::move(items), std::move(failure)));
}

template <class Each>
void for_each(Runtime& runtime, const Value& iterable, Each each) {
  Cursor cursor(iterable);
  for (Value item; cursor.next(item);) {
    runtime.charge(1, sizeof(Value));
    each(item);
  }
}

// select, reject and their forms for an attribute: jinja2's select_or_reject.
Value filtered(Runtime& runtime, const Value& input, Arguments arguments, bool wanted,
               bool by_attribute) {
  return generator([&](Values& items) {
    if (!truth(input)) return;
    Values& given = arguments.positional;
    if (by_attribute && given.empty()) throw Failure("Missing parameter for attribute name");
    const AttributePath path(by_attribute ? given[0] : Value());
    if (by_attribute) given.erase(given.begin());
    std::optional<Value> test;
    if (!given.empty()) {
      test = given[0];
      given.erase(given.begin());
      if (!test->is_string()) throw Failure("a test's name must be a string");
    }
    for_each(runtime, input, [&](const Value& item) {
      const Value subject = path.get(runtime, item);
      if ((test ? runtime.test(test->text(), subject, arguments) : truth(subject)) == wanted)
        items.push_back(item);
    });
  });
}

bool is_reversible(const Value& value) {
  return is_iterable(value) && !value.object<Iterator>() && !value.object<Loop>();
}
}  // namespace

Value first(Runtime&, Value input, Arguments arguments) {
  Bound("first", std::move(arguments), {});
  Value item;
  return Cursor(std::move(input)).next(item) ? item
                                             : make_undefined("No first item, sequence was empty.");
}

Value last(Runtime& runtime, Value input, Arguments arguments) {
  Bound("last", std::move(arguments), {});
  if (!is_reversible(input))
    throw Failure(str("'", type_name(input), "' object is not reversible"));
  const Values items = runtime.items_of(input);
  return items.empty() ? make_undefined("No last item, sequence was empty.") : items.back();
}

Value list(Runtime& runtime, Value input, Arguments arguments) {
  Bound("list", std::move(arguments), {});
  return make_list(runtime.items_of(input));
}

Value items(Runtime& runtime, Value input, Arguments arguments) {
  Bound("items", std::move(arguments), {});
  return generator([&](Values& pairs) {
    if (input.is_undefined()) return;
    const auto* dict = input.get_if<Dict>();
    if (!dict) throw Failure("Can only get item pairs from a mapping.");
    pairs = runtime.items_of(Value(std::make_shared<View>(*dict, View::Kind::kItems)));
  });
}

Value join(Runtime& runtime, Value input, Arguments arguments) {
  const Bound bound("join", std::move(arguments), {"d", "attribute"});
  const AttributePath path(bound.get(1, None{}));
  const std::string separator = bound.has(0) ? runtime.text(bound[0]) : "";
  std::string out;
  bool any = false;
  for_each(runtime, input, [&](const Value& item) {
    if (any) out += separator;
    runtime.charge(0, separator.size());
    out += runtime.text(path.get(runtime, item));
    any = true;
  });
  return out;
}

Value reverse(Runtime& runtime, Value input, Arguments arguments) {
  Bound("reverse", std::move(arguments), {});
  if (input.is_string()) return slice(input, {}, {}, -1);
  Values items = runtime.items_of(input);
  std::reverse(items.begin(), items.end());
  // Python's reversed() gives an iterator; for a value without an order jinja2 makes a list.
  if (!is_reversible(input)) return make_list(std::move(items));
  return Value(std::make_shared<Iterator>(std::move(items)));
}

Value batch(Runtime& runtime, Value input, Arguments arguments) {
  const Bound bound("batch", std::move(arguments), {"linecount", "fill_with"}, 1);
  return generator([&](Values& batches) {
    Values current;
    const auto full = [&] { return equal(Value(static_cast<int64_t>(current.size())), bound[0]); };
    for_each(runtime, input, [&](const Value& item) {
      if (full()) batches.push_back(make_list(std::exchange(current, {})));
      current.push_back(item);
    });
    if (current.empty()) return;
    if (bound.has(1) && !bound[1].is_none()) {
      const int64_t missing = bound.integer(0, 0) - static_cast<int64_t>(current.size());
      for (int64_t i = 0; i < missing; ++i) {
        runtime.charge(1, sizeof(Value));
        current.push_back(bound[1]);
      }
    }
    batches.push_back(make_list(std::move(current)));
  });
}

Value slices(Runtime& runtime, Value input, Arguments arguments) {
  const Bound bound("slice", std::move(arguments), {"slices", "fill_with"}, 1);
  return generator([&](Values& made) {
    const Values all = runtime.items_of(input);
    const int64_t n = bound.integer(0, 1), length = static_cast<int64_t>(all.size());
    if (n == 0) throw Failure("integer division or modulo by zero");
    const int64_t each = n > 0 ? length / n : 0, longer = n > 0 ? length % n : 0;
    const bool fills = bound.has(1) && !bound[1].is_none();
    auto next = all.begin();
    for (int64_t i = 0; i < n; ++i) {
      runtime.charge(1, sizeof(Value) * 4);
      const auto end = next + each + (i < longer ? 1 : 0);
      Values part(next, end);
      next = end;
      if (fills && i >= longer) part.push_back(bound[1]);
      made.push_back(make_list(std::move(part)));
    }
  });
}

Value map(Runtime& runtime, Value input, Arguments arguments) {
  return generator([&](Values& items) {
    if (!truth(input)) return;
    const auto named = [&](const char* name) {
      return std::find_if(arguments.named.begin(), arguments.named.end(),
                          [&](const auto& n) { return n.first == name; });
    };
    if (arguments.positional.empty() && named("attribute") != arguments.named.end()) {
      const Bound bound("map", std::move(arguments), {"attribute", "default"});
      const AttributePath path(bound[0]);
      const Value* fallback = bound.has(1) && !bound[1].is_none() ? &bound[1] : nullptr;
      for_each(runtime, input,
               [&](const Value& item) { items.push_back(path.get(runtime, item, fallback)); });
      return;
    }
    if (arguments.positional.empty()) throw Failure("map requires a filter argument");
    const Value name = arguments.positional[0];
    if (!name.is_string()) throw Failure("a filter's name must be a string");
    arguments.positional.erase(arguments.positional.begin());
    for_each(runtime, input, [&](const Value& item) {
      Value mapped = runtime.filter(name.text(), item, arguments);
      runtime.charge(0, mapped.text().size());
      items.push_back(std::move(mapped));
    });
  });
}

Value select(Runtime& runtime, Value input, Arguments arguments) {
  return filtered(runtime, input, std::move(arguments), true, false);
}
Value reject(Runtime& runtime, Value input, Arguments arguments) {
  return filtered(runtime, input, std::move(arguments), false, false);
}
Value select_attr(Runtime& runtime, Value input, Arguments arguments) {
  return filtered(runtime, input, std::move(arguments), true, true);
}
Value reject_attr(Runtime& runtime, Value input, Arguments arguments) {
  return filtered(runtime, input, std::move(arguments), false, true);
}

Value sum(Runtime& runtime, Value input, Arguments arguments) {
  const Bound bound("sum", std::move(arguments), {"attribute", "start"});
  const AttributePath path(bound.get(0, None{}));
  Value total = bound.get(1, 0);
  if (total.is_string()) throw Failure("sum() can't sum strings [use ''.join(seq) instead]");
  for_each(runtime, input, [&](const Value& item) {
    total = runtime.arithmetic(Arithmetic::kAdd, total, path.get(runtime, item));
    if (const Values* elements = total.elements())
      runtime.charge(0, elements->size() * sizeof(Value));
  });
  return total;
}

}  // namespace temper::jinja::filters
