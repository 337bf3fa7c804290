// What GBNF, llama.cpp's notation of grammars, has beyond XGrammar's EBNF.
#pragma once

#include <string>
#include <string_view>

namespace temper::grammar {

// The grammar with `.` (any character) written out as a class of characters. A dot in a name, a
// string, a class or a comment stays.
std::string without_dots(std::string_view gbnf);

}  // namespace temper::grammar
