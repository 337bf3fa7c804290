// Values of the template language, with Python's rules where they show: printing, equality, order,
// truth, hashing.
//
// Lists, tuples, dicts and strings never change once made (the sandbox refuses every method that
// would), so sharing is free and no cycle can form among them; how deep they nest is known when
// they are made and is bounded. What does change (namespaces, loops, iterators, cyclers) is an
// Object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace temper::jinja {

// An error in a template, before the interpreter adds the template's name and line and makes it a
// DataError.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// More work or memory than a render may use. No filter catches it.
class OverBudget : public Failure {
 public:
  using Failure::Failure;
};

class Value;
class Object;
struct Sequence;
struct Mapping;

struct None {
  bool operator==(const None&) const = default;
};

// jinja2's default Undefined: prints as nothing, is false and empty, and raises `message` when used
// otherwise.
struct Undefined {
  std::shared_ptr<const std::string> message;
};

// UTF-8 text. `markup` marks what went through `safe` or `escape` (markupsafe.Markup).
struct String {
  std::shared_ptr<const std::string> text;
  bool markup = false;
};

struct List {
  std::shared_ptr<const Sequence> data;
};
struct Tuple {
  std::shared_ptr<const Sequence> data;
};
struct Dict {
  std::shared_ptr<const Mapping> data;
};

using Values = std::vector<Value>;
using Pairs = std::vector<std::pair<Value, Value>>;

class Value {
 public:
  using Data = std::variant<Undefined, None, bool, int64_t, double, String, List, Tuple, Dict,
                            std::shared_ptr<Object>>;

  Value() : data_(None{}) {}
  Value(None) : data_(None{}) {}
  Value(bool b) : data_(b) {}
  Value(int64_t i) : data_(i) {}
  Value(int i) : data_(int64_t{i}) {}
  Value(double d) : data_(d) {}
  Value(std::string text, bool markup = false)
      : data_(String{std::make_shared<const std::string>(std::move(text)), markup}) {}
  Value(const char* text) : Value(std::string(text)) {}
  Value(String s) : data_(std::move(s)) {}
  Value(List l) : data_(std::move(l)) {}
  Value(Tuple t) : data_(std::move(t)) {}
  Value(Dict d) : data_(std::move(d)) {}
  Value(Undefined u) : data_(std::move(u)) {}
  template <class T>
    requires std::is_base_of_v<Object, T>
  Value(std::shared_ptr<T> object) : data_(std::shared_ptr<Object>(std::move(object))) {}

  template <class T>
  const T* get_if() const {
    return std::get_if<T>(&data_);
  }
  template <class T>
  bool is() const {
    return std::holds_alternative<T>(data_);
  }
  const Data& data() const { return data_; }

  bool is_undefined() const { return is<Undefined>(); }
  bool is_none() const { return is<None>(); }
  bool is_string() const { return is<String>(); }
  bool is_markup() const { return is_string() && get_if<String>()->markup; }
  bool is_dict() const { return is<Dict>(); }
  // Python's int and its subclass bool.
  bool is_integral() const { return is<int64_t>() || is<bool>(); }
  bool is_number() const { return is_integral() || is<double>(); }

  // The text of a string; empty for anything else.
  const std::string& text() const;
  // The integer of an int or bool; 0 for anything else.
  int64_t integer() const;
  // The number as a double; 0 for what is no number.
  double real() const;
  // The elements of a list or tuple, else null.
  const Values* elements() const;
  // The object if it is a T, else null.
  template <class T>
  T* object() const {
    const auto* held = get_if<std::shared_ptr<Object>>();
    return held ? dynamic_cast<T*>(held->get()) : nullptr;
  }

 private:
  Data data_;
};

// Anything with identity or state. `name` is Python's name of the type, for messages.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::string type_name() const = 0;
  virtual std::string repr() const;
  virtual bool truth() const { return true; }
  // How deep it nests and how much printing it costs, as for other values; fixed when it is made.
  virtual int nesting() const { return 0; }
  virtual size_t weight() const { return 1; }
};

// Elements of a list or tuple. `grouped`: a pair that groupby made, with attributes `grouper` and
// `list`.
struct Sequence {
  Values items;
  int depth = 1;
  size_t weight = 1;
  bool grouped = false;
};

// A dict: pairs in insertion order, with an index over the hashes once there are many.
struct Mapping {
  Pairs pairs;
  int depth = 1;
  size_t weight = 1;
  std::vector<std::pair<size_t, uint32_t>>
      index;  // (hash of the key, position), sorted; empty for small dicts

  // The value of a key, or null. Throws Failure for a key that cannot be hashed.
  const Value* find(const Value& key) const;
  const Value* find_text(const std::string& key) const;
};

// Values may nest this deep; what would nest deeper is a Failure.
constexpr int kMaxNesting = 900;

Value make_list(Values items);
Value make_tuple(Values items);
Value make_group(Value grouper, Value list);
// Later pairs win over earlier ones with an equal key but keep their place. Throws Failure for an
// unhashable key.
Value make_dict(Pairs pairs);
Value make_undefined(std::string message);

// How deep a value nests: 0 for what holds nothing.
int nesting(const Value& value);
// That of something which holds a value nesting `children` deep; Failure beyond kMaxNesting.
int nesting_above(int children);

// About what it costs to walk through a value (print, compare, hash it): 1 for each part, and 1 for
// 16 bytes of text. Shared parts count each time, so that a value of few parts may weigh more than
// any budget; it saturates.
size_t weight(const Value& value);
size_t saturating_add(size_t a, size_t b);

// Python's name of the value's type.
std::string type_name(const Value& value);

bool truth(const Value& value);
// str() and repr().
std::string to_text(const Value& value);
std::string to_repr(const Value& value);
std::string float_repr(double value);
std::string string_repr(std::string_view text);

// ==, as Python has it: 1 == 1.0 == True, a list is no tuple, objects by identity.
bool equal(const Value& a, const Value& b);
// <: throws Failure where Python raises TypeError.
bool less(const Value& a, const Value& b);
// <=: differs from !(b < a) for NaN alone.
bool less_equal(const Value& a, const Value& b);
// Python's hash in its rules (equal values hash alike); throws Failure for lists and dicts.
size_t hash(const Value& value);

}  // namespace temper::jinja
