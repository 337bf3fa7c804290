// Regular expressions for strings, as expressions for what JSON writes between their quotes.
#pragma once

#include <string>
#include <string_view>

namespace temper::grammar {

// An expression for the text between a JSON string's quotes, where `pattern` (ECMAScript's, as far
// as XGrammar reads it) describes the string: quotes, backslashes and control characters that it
// may match stand as their escapes. What XGrammar will refuse stays as it is. Throws ConfigError
// that begins with `where` for a class that no character of a JSON text is in.
std::string json_pattern(std::string_view pattern, const std::string& where);

}  // namespace temper::grammar
