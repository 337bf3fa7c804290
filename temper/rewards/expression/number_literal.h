// Numbers as expressions write them.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "temper/rewards/expression/value.h"

namespace temper::rewards {

struct NumberLiteral {
  Value value;
  size_t length;  // bytes of text
};

// The number without a sign that a text begins with: 12, 1.5, .5, 1.5e3, 0.1\overline{6}. nullopt:
// it begins with none, or with one beyond the range of doubles that is no integer.
std::optional<NumberLiteral> read_number(std::string_view text);

}  // namespace temper::rewards
