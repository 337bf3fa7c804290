// GBNF's dot (llama.cpp, grammars/README.md) for XGrammar's EBNF.
#pragma once

#include <string>
#include <string_view>

namespace temper::grammar {

// The grammar with "." (any character, line ends included) replaced by a character class. Dots
// stay in strings, character classes, comments, and names of rules, which XGrammar's notation lets
// have them.
std::string without_dots(std::string_view gbnf);

}  // namespace temper::grammar
