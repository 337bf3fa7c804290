// Regular expressions for the formats of JSON schema.
#pragma once

#include <string>

namespace temper::grammar {

// The expression for a `format` of JSON schema; empty where XGrammar's own is used. An expression
// accepts less than the format's RFC where that is not a regular language or has no length limit:
// labels of host names have at most 35 characters, seconds are at most 59.
std::string format_pattern(const std::string& format);

}  // namespace temper::grammar
