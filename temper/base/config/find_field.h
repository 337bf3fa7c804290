// Fields of JSON objects by a path.
#pragma once

#include <string_view>

#include "temper/base/json.h"

namespace temper {

// The value that a field has, or, where the object has no field of that name, the one that a path
// within it ("meta.domain") leads to; null where there is none, or where it is no object.
const Json* find_field(const Json& row, std::string_view name);

}  // namespace temper
