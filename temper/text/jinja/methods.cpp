#include "temper/text/jinja/methods.h"

#include <algorithm>

#include "temper/base/error.h"
#include "temper/text/jinja/runtime.h"
#include "temper/text/jinja/sequences.h"

namespace temper::jinja {
namespace {
Value method(const std::string& name, const Value& self, Function::Body body) {
  return Value(std::make_shared<Function>(name, std::move(body), self));
}

// The immutable sandbox's result for a method that would change its value: an Undefined that raises
// when called.
std::optional<Value> refused(const Value& self, const std::string& name,
                             std::initializer_list<const char*> unsafe) {
  if (std::find(unsafe.begin(), unsafe.end(), name) == unsafe.end()) return std::nullopt;
  return make_undefined(
      str("access to attribute '", name, "' of '", type_name(self), "' object is unsafe."));
}

std::optional<Value> find_dict_method(const Value& self, const std::string& name) {
  const Dict dict = *self.get_if<Dict>();
  const auto view = [&](View::Kind kind) {
    return method(name, self, [dict, kind](Runtime&, Arguments arguments) {
      Bound("dict view", std::move(arguments), {});
      return Value(std::make_shared<View>(dict, kind));
    });
  };
  if (name == "items") return view(View::Kind::kItems);
  if (name == "keys") return view(View::Kind::kKeys);
  if (name == "values") return view(View::Kind::kValues);
  if (name == "get") {
    return method(name, self, [dict](Runtime& runtime, Arguments arguments) {
      const Bound bound("get", std::move(arguments), {"key", "default"}, 1);
      runtime.charge(weight(bound[0]));
      const Value* found = dict.data->find(bound[0]);
      return found ? *found : bound.get(1, None{});
    });
  }
  if (name == "copy") {
    return method(name, self, [dict](Runtime&, Arguments arguments) {
      Bound("copy", std::move(arguments), {});
      return Value(dict);
    });
  }
  return refused(self, name, {"clear", "pop", "popitem", "setdefault", "update"});
}

Value index_of(Runtime& runtime, const Value& self, Arguments arguments) {
  const Bound bound("index", std::move(arguments), {"value", "start", "stop"}, 1);
  const Values& items = *self.elements();
  const auto n = static_cast<int64_t>(items.size());
  const auto clip = [&](size_t i, int64_t fallback) {
    const int64_t k = bound.integer(i, fallback);
    return std::clamp<int64_t>(k < 0 ? (k < -n ? 0 : k + n) : k, 0, n);
  };
  const int64_t end = clip(2, n);
  for (int64_t i = clip(1, 0); i < end; ++i) {
    if (runtime.relation(Relation::kEqual, items[static_cast<size_t>(i)], bound[0])) return i;
  }
  throw Failure("value is not in the sequence");
}

Value count_of(Runtime& runtime, const Value& self, Arguments arguments) {
  const Bound bound("count", std::move(arguments), {"value"}, 1);
  const Values& items = *self.elements();
  return static_cast<int64_t>(std::count_if(items.begin(), items.end(), [&](const Value& item) {
    return runtime.relation(Relation::kEqual, item, bound[0]);
  }));
}

std::optional<Value> find_sequence_method(const Value& self, const std::string& name) {
  if (name == "index" || name == "count") {
    const auto function = name == "index" ? index_of : count_of;
    return method(name, self, [self, function](Runtime& runtime, Arguments arguments) {
      return function(runtime, self, std::move(arguments));
    });
  }
  if (const auto* tuple = self.get_if<Tuple>()) {
    if (tuple->data->grouped && name == "grouper") return tuple->data->items[0];
    if (tuple->data->grouped && name == "list") return tuple->data->items[1];
    return std::nullopt;
  }
  if (name == "copy") {
    return method(name, self, [self](Runtime&, Arguments arguments) {
      Bound("copy", std::move(arguments), {});
      return self;
    });
  }
  return refused(self, name,
                 {"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"});
}

std::optional<Value> find_loop_attribute(const Value& self, Loop& loop, const std::string& name) {
  const int64_t index0 = loop.index0();
  if (name == "index") return Value(index0 + 1);
  if (name == "index0") return Value(index0);
  if (name == "first") return Value(index0 == 0);
  if (name == "last") return Value(loop.last());
  if (name == "length") return Value(loop.length());
  if (name == "revindex") return Value(loop.length() - index0);
  if (name == "revindex0") return Value(loop.length() - index0 - 1);
  if (name == "previtem") return loop.previous();
  if (name == "nextitem") return loop.next_item();
  if (name == "depth") return Value(1);
  if (name == "depth0") return Value(0);
  if (name == "cycle") {
    return method(name, self, [self](Runtime&, Arguments arguments) {
      if (arguments.positional.empty() || !arguments.named.empty())
        throw Failure("no items for cycling given");
      const auto i = static_cast<size_t>(self.object<Loop>()->index0());
      return arguments.positional[i % arguments.positional.size()];
    });
  }
  if (name == "changed") {
    return method(name, self, [self](Runtime& runtime, Arguments arguments) {
      if (!arguments.named.empty()) throw Failure("changed() takes no keyword arguments");
      for (const Value& value : arguments.positional) runtime.charge(weight(value), sizeof(Value));
      return Value(self.object<Loop>()->changed(std::move(arguments.positional)));
    });
  }
  return std::nullopt;
}

std::optional<Value> find_cycler_attribute(const Value& self, const Cycler& cycler,
                                           const std::string& name) {
  if (name == "current") return cycler.current();
  if (name == "next") {
    return method(name, self,
                  [self](Runtime&, Arguments) { return self.object<Cycler>()->next(); });
  }
  if (name == "reset") {
    return method(name, self, [self](Runtime&, Arguments) {
      self.object<Cycler>()->reset();
      return Value();
    });
  }
  return std::nullopt;
}
}  // namespace

std::optional<Value> find_method(const Value& value, const std::string& name) {
  if (value.is_string()) return find_string_method(value, name);
  if (value.is_dict()) return find_dict_method(value, name);
  if (value.elements()) return find_sequence_method(value, name);
  if (auto* loop = value.object<Loop>()) return find_loop_attribute(value, *loop, name);
  if (const auto* cycler = value.object<Cycler>())
    return find_cycler_attribute(value, *cycler, name);
  if (const auto* ns = value.object<Namespace>()) {
    if (const Value* found = ns->find(name)) return *found;
  }
  return std::nullopt;
}

}  // namespace temper::jinja
