// Regular expressions for the formats of JSON schema.
#pragma once

#include <string>

namespace temper::grammar {

// The expression for a format of JSON schema that has one here; empty: XGrammar's own will do. Each
// takes less than its RFC where that is no regular language or has no bound: labels of host names
// are of at most 35 characters, seconds of at most 59.
std::string format_pattern(const std::string& format);

}  // namespace temper::grammar
