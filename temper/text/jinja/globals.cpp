// The functions that templates find without being given them.
#include <algorithm>
#include <map>

#include "temper/base/error.h"
#include "temper/text/jinja/runtime.h"
#include "temper/text/unicode.h"

namespace temper::jinja {
namespace {
Value range(Runtime&, Arguments arguments) {
  if (arguments.positional.empty()) throw Failure("range expected at least 1 argument, got 0");
  const Bound bound("range", std::move(arguments), {"start", "stop", "step"}, 1);
  for (size_t i = 0; i < 3; ++i) bound.integer(i, 0);
  const bool only_stop = !bound.has(1);
  return Value(std::make_shared<Range>(only_stop ? 0 : bound.integer(0, 0),
                                       only_stop ? bound.integer(0, 0) : bound.integer(1, 0),
                                       bound.integer(2, 1)));
}

// dict(mapping or pairs, **more)
Value dict(Runtime& runtime, Arguments arguments) {
  if (arguments.positional.size() > 1) throw Failure("dict expected at most 1 argument");
  Pairs pairs;
  if (!arguments.positional.empty()) {
    const Value& initial = arguments.positional[0];
    if (const auto* mapping = initial.get_if<Dict>()) {
      pairs = mapping->data->pairs;
    } else {
      for (const Value& item : runtime.items_of(initial)) {
        Values pair = runtime.items_of(item);
        if (pair.size() != 2) throw Failure("dictionary update sequence element is no pair");
        pairs.emplace_back(std::move(pair[0]), std::move(pair[1]));
      }
    }
  }
  for (auto& [name, value] : arguments.named) pairs.emplace_back(Value(name), std::move(value));
  for (const auto& [key, value] : pairs) runtime.charge(weight(key), 2 * sizeof(Value));
  return make_dict(std::move(pairs));
}

Value raise_exception(Runtime& runtime, Arguments arguments) {
  const Bound bound("raise_exception", std::move(arguments), {"message"}, 1);
  throw Failure(printable(runtime.text(bound[0])));  // a NUL would end the message
}

Value strftime_now(Runtime& runtime, Arguments arguments) {
  const Bound bound("strftime_now", std::move(arguments), {"format"}, 1);
  const std::string format = bound.text(0, "");
  const std::tm now = runtime.now();
  // Python's own directives, and those of a time without a zone, are replaced first; C knows the
  // rest. A trailing mark tells an empty result from a failed one.
  std::string c_format;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      c_format += format[i];
      continue;
    }
    const char directive = format[++i];
    if (directive == 'f')
      c_format += "000000";
    else if (directive != 'z' && directive != 'Z')
      (c_format += '%') += directive;
  }
  c_format += '.';
  if (c_format.size() > 4096 || c_format.find('\0') != std::string::npos)
    throw Failure("strftime format too long");
  std::string out(size_t{1} << 16, '\0');
  const size_t size = std::strftime(out.data(), out.size(), c_format.c_str(), &now);
  if (size == 0) throw Failure("strftime result too long");
  out.resize(size - 1);
  return out;
}

Value cycler(Runtime&, Arguments arguments) {
  if (!arguments.named.empty()) throw Failure("cycler() takes no keyword arguments");
  return Value(std::make_shared<Cycler>(std::move(arguments.positional)));
}

Value joiner(Runtime&, Arguments arguments) {
  const Bound bound("joiner", std::move(arguments), {"sep"});
  return Value(std::make_shared<Joiner>(bound.get(0, ", ")));
}

Value make_namespace(Runtime& runtime, Arguments arguments) {
  return runtime.make_namespace(std::move(arguments));
}
}  // namespace

Value global_value(const std::string& name) {
  static const std::map<std::string, Value, std::less<>> globals = [] {
    std::map<std::string, Value, std::less<>> table;
    const std::pair<const char*, Value (*)(Runtime&, Arguments)> functions[] = {
        {"range", range},
        {"dict", dict},
        {"namespace", make_namespace},
        {"cycler", cycler},
        {"joiner", joiner},
        {"raise_exception", raise_exception},
        {"strftime_now", strftime_now},
    };
    for (const auto& [key, function] : functions)
      table.emplace(key, Value(std::make_shared<Function>(key, function)));
    return table;
  }();
  const auto found = globals.find(name);
  return found != globals.end() ? found->second : make_undefined(str("'", name, "' is undefined"));
}

}  // namespace temper::jinja
