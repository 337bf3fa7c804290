// Comparing the tokens of two tokenizers.
#pragma once

#include <cstdint>
#include <optional>

#include "temper/text/tokenizer/tokenizer.h"

namespace temper {

// The smallest id under which the two have different tokens, or only one has a token; none: ids
// mean the same to both.
std::optional<int32_t> first_difference(const Tokenizer& a, const Tokenizer& b);

}  // namespace temper
