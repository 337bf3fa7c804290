// Indexing, slicing and repeating what Python calls sequences: strings, lists, tuples and ranges.
#pragma once

#include <cstdint>
#include <optional>

#include "temper/text/jinja/value.h"

namespace temper::jinja {

class Runtime;

// The element at an index, counted from the end when negative; nothing when out of range or no
// sequence.
std::optional<Value> element(const Value& sequence, int64_t index);

// sequence[start:stop:step]. Throws Failure for what cannot be sliced and for a step of zero.
Value slice(const Value& sequence, std::optional<int64_t> start, std::optional<int64_t> stop,
            int64_t step);

// sequence * count, paid for before it is made.
Value repeat(Runtime& runtime, const Value& sequence, int64_t count);

// Steps to charge for one pass over a value's elements or text.
size_t length_cost(const Value& value);

}  // namespace temper::jinja
