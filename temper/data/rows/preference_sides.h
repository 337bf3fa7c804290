// The fields of a row of preferences: a prompt and its completions, of text, messages or ids.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "temper/base/json.h"

namespace temper::data {

struct PreferenceSides {
  Json prompt;
  Json chosen, rejected;  // null: the row has none
  bool ids = false;
};

// The sides of a pair, or, where `unpaired` and the row has a `label`, of one completion. Throws
// DataError that begins with `where`: a side is missing or empty, or both are equal.
PreferenceSides preference_sides(const Json& row, bool unpaired, const std::string& where);

}  // namespace temper::data
