// Comparing the tokens of two tokenizers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "temper/text/tokenizer/tokenizer.h"

namespace temper {

// The smallest id under which the two have different tokens, or only one has a token; none: ids
// mean the same to both.
std::optional<int32_t> first_difference(const Tokenizer& a, const Tokenizer& b);

// SHA-256 of all tokens in the order of their ids: the same where first_difference() finds none.
std::string digest_of_tokens(const Tokenizer& tokenizer);

}  // namespace temper
