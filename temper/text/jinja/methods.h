// Attributes and methods of values, by type.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "temper/text/jinja/value.h"

namespace temper::jinja {

// A method of str, bound to the string; nothing when str has none of that name.
std::optional<Value> find_string_method(const Value& self, const std::string& name);

// str.isupper() or str.islower().
bool has_case(std::string_view text, bool upper);

}  // namespace temper::jinja
