// Translates regular expressions for strings into expressions for their JSON text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace temper::grammar {

// How many of the repetitions {n}, {n,} and {m,n} of an expression or a grammar go up to 32 or
// more; those within quotes count, too. The time of XGrammar grows with the square of their number,
// whatever they repeat.
int64_t num_large_repeats(std::string_view text);
inline constexpr int64_t kMostRepeats = 256;  // of these in one expression, grammar or schema

// An expression for the text between a JSON string's quotes, where `pattern` (ECMAScript's, as far
// as XGrammar reads it, in UTF-8) describes the string: quotes, backslashes and control characters
// that it may match become their escapes. What XGrammar will refuse stays as it is. Throws
// ConfigError that begins with `where` for a character class that no character of a JSON text
// belongs to.
std::string json_pattern(std::string_view pattern, const std::string& where);

}  // namespace temper::grammar
