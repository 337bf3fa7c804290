// The filters themselves, which the table in filters.cpp names, and what they share.
#pragma once

#include <vector>

#include "temper/text/jinja/objects.h"

namespace temper::jinja::filters {

// jinja2's attribute getters: `attribute="author.name"`, where each part is looked up as an item
// first (filters_order.cpp).
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

// On text (filters_text.cpp).
Value upper(Interpreter&, Value, Arguments);
Value lower(Interpreter&, Value, Arguments);
Value capitalize(Interpreter&, Value, Arguments);
Value title(Interpreter&, Value, Arguments);
Value trim(Interpreter&, Value, Arguments);
Value replace(Interpreter&, Value, Arguments);
Value indent(Interpreter&, Value, Arguments);
Value center(Interpreter&, Value, Arguments);
Value truncate(Interpreter&, Value, Arguments);
Value word_count(Interpreter&, Value, Arguments);
Value format(Interpreter&, Value, Arguments);
Value string(Interpreter&, Value, Arguments);
Value safe(Interpreter&, Value, Arguments);
Value escape(Interpreter&, Value, Arguments);
Value force_escape(Interpreter&, Value, Arguments);
Value url_encode(Interpreter&, Value, Arguments);
Value to_json(Interpreter&, Value, Arguments);

// On one value (filters_value.cpp).
Value use_default(Interpreter&, Value, Arguments);
Value attr(Interpreter&, Value, Arguments);
Value to_int(Interpreter&, Value, Arguments);
Value to_float(Interpreter&, Value, Arguments);
Value absolute(Interpreter&, Value, Arguments);
Value round(Interpreter&, Value, Arguments);
Value length(Interpreter&, Value, Arguments);

// On what can be iterated over (filters_sequence.cpp, filters_order.cpp).
Value first(Interpreter&, Value, Arguments);
Value last(Interpreter&, Value, Arguments);
Value list(Interpreter&, Value, Arguments);
Value items(Interpreter&, Value, Arguments);
Value join(Interpreter&, Value, Arguments);
Value reverse(Interpreter&, Value, Arguments);
Value batch(Interpreter&, Value, Arguments);
Value slices(Interpreter&, Value, Arguments);
Value map(Interpreter&, Value, Arguments);
Value select(Interpreter&, Value, Arguments);
Value reject(Interpreter&, Value, Arguments);
Value select_attr(Interpreter&, Value, Arguments);
Value reject_attr(Interpreter&, Value, Arguments);
Value sum(Interpreter&, Value, Arguments);
Value sort(Interpreter&, Value, Arguments);
Value dict_sort(Interpreter&, Value, Arguments);
Value unique(Interpreter&, Value, Arguments);
Value min(Interpreter&, Value, Arguments);
Value max(Interpreter&, Value, Arguments);
Value group_by(Interpreter&, Value, Arguments);

}  // namespace temper::jinja::filters
