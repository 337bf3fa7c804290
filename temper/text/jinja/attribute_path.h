// jinja2's attribute getters: `attribute="author.name"`, where each part is looked up as an item
// first.
#pragma once

#include <vector>

#include "temper/text/jinja/interpreter.h"

namespace temper::jinja {

class AttributePath {
 public:
  // None: the value itself. A text is split at its dots, and parts of digits are indices.
  explicit AttributePath(const Value& attribute);

  Value get(Interpreter& interpreter, Value value, const Value* fallback = nullptr) const;

 private:
  std::vector<Value> parts_;
};

// Several paths with commas between them, as `sort` takes them; the values come as a list.
std::vector<AttributePath> attribute_paths(const Value& attribute);

// A text in lower case, all else as it is: what comparisons that ignore case compare.
Value without_case(const Value& value);

}  // namespace temper::jinja
