// What templates compute with while they run: budgets, operators, look-ups, calls. Filters, tests
// and methods use it, too.
#pragma once

#include <cstddef>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "temper/text/jinja/objects.h"
#include "temper/text/jinja/parse/syntax.h"
#include "temper/text/jinja/template.h"

namespace temper::jinja {

class Runtime {
 public:
  // `options` outlives the runtime.
  explicit Runtime(const RenderOptions& options) : options_(options) {}
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  // One level of recursion. Throws OverBudget where it is too deep.
  class Level {
   public:
    explicit Level(Runtime& runtime);
    ~Level() { --depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    int& depth_;
  };

  // Counts work against the budget: steps of about the same cost, and bytes of memory made. Throws
  // OverBudget.
  void charge(size_t steps, size_t bytes = 0);
  // Charges for a value that an operation has just made.
  Value made(Value value);
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

  // The template's line that is being run, for messages.
  int line() const { return line_; }
  void set_line(int line) { line_ = line; }

 private:
  const RenderOptions& options_;
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
