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

  Value get(Runtime& runtime, Value value, const Value* fallback = nullptr) const;

 private:
  std::vector<Value> parts_;
};

// Several paths with commas between them, as `sort` takes them; the values come as a list.
std::vector<AttributePath> attribute_paths(const Value& attribute);

// A text in lower case, all else as it is: what comparisons that ignore case compare.
Value without_case(const Value& value);

// On text (filters_text.cpp).
Value upper(Runtime&, Value, Arguments);
Value lower(Runtime&, Value, Arguments);
Value capitalize(Runtime&, Value, Arguments);
Value title(Runtime&, Value, Arguments);
Value trim(Runtime&, Value, Arguments);
Value replace(Runtime&, Value, Arguments);
Value indent(Runtime&, Value, Arguments);
Value center(Runtime&, Value, Arguments);
Value truncate(Runtime&, Value, Arguments);
Value word_count(Runtime&, Value, Arguments);
Value format(Runtime&, Value, Arguments);
Value string(Runtime&, Value, Arguments);
Value safe(Runtime&, Value, Arguments);
Value escape(Runtime&, Value, Arguments);
Value force_escape(Runtime&, Value, Arguments);
Value url_encode(Runtime&, Value, Arguments);
Value to_json(Runtime&, Value, Arguments);

// On one value (filters_value.cpp).
Value use_default(Runtime&, Value, Arguments);
Value attr(Runtime&, Value, Arguments);
Value to_int(Runtime&, Value, Arguments);
Value to_float(Runtime&, Value, Arguments);
Value absolute(Runtime&, Value, Arguments);
Value round(Runtime&, Value, Arguments);
Value length(Runtime&, Value, Arguments);

// On what can be iterated over (filters_sequence.cpp, filters_order.cpp).
Value first(Runtime&, Value, Arguments);
Value last(Runtime&, Value, Arguments);
Value list(Runtime&, Value, Arguments);
Value items(Runtime&, Value, Arguments);
Value join(Runtime&, Value, Arguments);
Value reverse(Runtime&, Value, Arguments);
Value batch(Runtime&, Value, Arguments);
Value slices(Runtime&, Value, Arguments);
Value map(Runtime&, Value, Arguments);
Value select(Runtime&, Value, Arguments);
Value reject(Runtime&, Value, Arguments);
Value select_attr(Runtime&, Value, Arguments);
Value reject_attr(Runtime&, Value, Arguments);
Value sum(Runtime&, Value, Arguments);
Value sort(Runtime&, Value, Arguments);
Value dict_sort(Runtime&, Value, Arguments);
Value unique(Runtime&, Value, Arguments);
Value min(Runtime&, Value, Arguments);
Value max(Runtime&, Value, Arguments);
Value group_by(Runtime&, Value, Arguments);

}  // namespace temper::jinja::filters
