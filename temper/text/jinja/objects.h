// Values with identity or state: functions, ranges, iterators, namespaces and the `loop` variable.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "temper/text/jinja/value.h"

namespace temper::jinja {

// An integer beyond 64 bits: it is printed, written as JSON and compared for equality, and nothing
// is computed with it.
class BigInteger : public Object {
 public:
  explicit BigInteger(std::string digits) : digits_(std::move(digits)) {}
  std::string type_name() const override { return "int"; }
  std::string repr() const override { return digits_; }
  size_t weight() const override { return 1 + digits_.size() / 16; }
  const std::string& digits() const { return digits_; }  // decimal, with a "-" before it below 0

 private:
  std::string digits_;
};

class Runtime;

// The arguments of a call, filter or test.
struct Arguments {
  Values positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Arguments bound to a function's parameters as Python does it. Throws Failure for too many,
// unknown or missing ones.
class Bound {
 public:
  Bound(const char* function, Arguments arguments, std::initializer_list<const char*> parameters,
        size_t required = 0);

  bool has(size_t i) const { return values_[i].has_value(); }
  const Value& operator[](size_t i) const { return *values_[i]; }
  Value get(size_t i, Value fallback) const {
    return values_[i] ? *values_[i] : std::move(fallback);
  }
  // The parameter as a truth value, an int or a string; Failure when it is of another type.
  bool flag(size_t i, bool fallback) const { return values_[i] ? truth(*values_[i]) : fallback; }
  int64_t integer(size_t i, int64_t fallback) const;
  std::string text(size_t i, const char* fallback) const;

 private:
  const char* function_;
  std::vector<const char*> parameters_;
  std::vector<std::optional<Value>> values_;
};

class Callable : public Object {
 public:
  virtual Value call(Runtime& runtime, Arguments arguments) = 0;
};

// A global function, or a method together with the value it belongs to.
class Function final : public Callable {
 public:
  using Body = std::function<Value(Runtime&, Arguments)>;
  Function(std::string name, Body body, const Value& self = {})
      : name_(std::move(name)),
        body_(std::move(body)),
        nesting_(nesting_above(jinja::nesting(self))) {}
  std::string type_name() const override { return "builtin_function_or_method"; }
  std::string repr() const override { return "<built-in function " + name_ + ">"; }
  int nesting() const override { return nesting_; }
  Value call(Runtime& runtime, Arguments arguments) override {
    return body_(runtime, std::move(arguments));
  }

 private:
  std::string name_;
  Body body_;
  int nesting_;
};

class Range final : public Object {
 public:
  Range(int64_t start, int64_t stop, int64_t step);
  std::string type_name() const override { return "range"; }
  std::string repr() const override;
  bool truth() const override { return length_ > 0; }
  int64_t length() const { return length_; }
  int64_t at(int64_t i) const { return start_ + i * step_; }
  int64_t step() const { return step_; }

 private:
  int64_t start_, stop_, step_, length_ = 0;
};

// A generator: its items are made at once, and an error that making them met is raised when it is
// reached.
class Iterator final : public Object {
 public:
  explicit Iterator(Values items, std::optional<std::string> failure = {});
  std::string type_name() const override { return "generator"; }
  int nesting() const override { return nesting_; }
  bool next(Value& item);

 private:
  Values items_;
  std::optional<std::string> failure_;
  size_t position_ = 0;
  int nesting_ = 0;
};

// keys(), values() and items() of a dict.
class View final : public Object {
 public:
  enum class Kind { kKeys, kValues, kItems };
  View(Dict dict, Kind kind)
      : dict_(std::move(dict)), kind_(kind), nesting_(nesting_above(dict_.data->depth + 1)) {}
  std::string type_name() const override;
  std::string repr() const override;
  bool truth() const override { return !dict_.data->pairs.empty(); }
  int nesting() const override { return nesting_; }
  size_t weight() const override { return dict_.data->weight; }
  size_t length() const { return dict_.data->pairs.size(); }
  Value at(size_t i) const;
  Kind kind() const { return kind_; }
  const Mapping& mapping() const { return *dict_.data; }

 private:
  Dict dict_;
  Kind kind_;
  int nesting_;
};

// The only object that a template may change. The runtime empties it when the render ends, so
// that a namespace which holds itself is freed.
class Namespace final : public Object {
 public:
  std::string type_name() const override { return "Namespace"; }
  std::string repr() const override { return "<Namespace {...}>"; }
  // With its attributes; those that are namespaces themselves in short.
  std::string long_repr() const;
  const Value* find(const std::string& name) const;
  // Throws Failure for a name that begins with an underscore, as transformers does.
  void set(const std::string& name, Value value);
  void clear() { attributes_.clear(); }
  size_t total_weight() const;

 private:
  std::vector<std::pair<std::string, Value>> attributes_;
};

class Cycler final : public Object {
 public:
  explicit Cycler(Values items);
  std::string type_name() const override { return "Cycler"; }
  int nesting() const override { return nesting_; }
  const Value& current() const { return items_[position_]; }
  Value next();
  void reset() { position_ = 0; }

 private:
  Values items_;
  size_t position_ = 0;
  int nesting_;
};

class Joiner final : public Callable {
 public:
  explicit Joiner(Value separator)
      : separator_(std::move(separator)), nesting_(nesting_above(jinja::nesting(separator_))) {}
  std::string type_name() const override { return "Joiner"; }
  int nesting() const override { return nesting_; }
  Value call(Runtime&, Arguments) override {
    return std::exchange(used_, true) ? separator_ : Value("");
  }

 private:
  Value separator_;
  int nesting_;
  bool used_ = false;
};

// Walks through anything that Python can iterate over.
class Cursor {
 public:
  // Throws Failure for what is not iterable.
  explicit Cursor(Value source);
  bool next(Value& item);

 private:
  Value source_;
  size_t position_ = 0;  // index of the next element; in a string, its byte
};

bool is_iterable(const Value& value);
// len(), or nothing where Python has no length.
std::optional<size_t> length_of(const Value& value);

// `loop` in a for statement. Items come one by one, so that a test of the loop sees what the body
// has changed.
class Loop final : public Object {
 public:
  using Test = std::function<bool(const Value&)>;
  // The test may be empty. It is forgotten when the loop ends.
  Loop(const Value& iterable, Test test);
  std::string type_name() const override { return "LoopContext"; }
  std::string repr() const override { return "<LoopContext>"; }
  bool truth() const override { return true; }
  int nesting() const override { return nesting_; }

  bool advance(Value& item);
  void end();
  int64_t length();
  int64_t index0() const { return index0_; }
  bool last() { return !peek(); }
  Value previous() const;
  Value next_item();
  bool changed(Values values);

 private:
  bool fetch(Value& item);
  bool peek();

  Cursor cursor_;
  Test test_;
  int nesting_;
  std::optional<size_t> length_;
  std::optional<Values> rest_;  // remaining items, taken out of the cursor by length()
  size_t rest_position_ = 0;
  int64_t index0_ = -1;
  std::optional<Value> current_, before_, after_;
  std::optional<Values> last_changed_;
};

}  // namespace temper::jinja
