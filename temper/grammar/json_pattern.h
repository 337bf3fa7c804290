// Translates regular expressions for strings into expressions for their JSON text.
#pragma once

#include <string>
#include <string_view>

namespace temper::grammar {

// An expression for the text between a JSON string's quotes, where `pattern` (ECMAScript's, as far
// as XGrammar reads it, in UTF-8) describes the string: quotes, backslashes and control characters
// that it may match become their escapes. What XGrammar will refuse stays as it is. Throws
// ConfigError that begins with `where` for a character class that no character of a JSON text
// belongs to.
std::string json_pattern(std::string_view pattern, const std::string& where);

}  // namespace temper::grammar
