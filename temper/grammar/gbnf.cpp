#include "temper/grammar/gbnf.h"

#include <algorithm>
#include <cctype>

namespace temper::grammar {
namespace {

constexpr std::string_view kAnyCharacter = "[\\u0000-\\U0010ffff]";

bool is_of_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-';
}

// One past what begins at `begin` with a quote, a bracket or #.
size_t end_of_part(std::string_view text, size_t begin) {
  const char close = text[begin] == '[' ? ']' : text[begin] == '#' ? '\n' : text[begin];
  size_t at = begin + 1;
  while (at < text.size() && text[at] != close) at += text[at] == '\\' && close != '\n' ? 2 : 1;
  return std::min(at + 1, text.size());
}

}  // namespace

std::string without_dots(std::string_view gbnf) {
  std::string out;
  bool in_name = false;  // a dot within a name is part of it
  for (size_t at = 0; at < gbnf.size();) {
    const char c = gbnf[at];
    if (c == '"' || c == '[' || c == '#') {
      const size_t end = end_of_part(gbnf, at);
      out += gbnf.substr(at, end - at);
      at = end;
      in_name = false;
    } else {
      if (c == '.' && !in_name)
        out += kAnyCharacter;
      else
        out += c;
      in_name = is_of_name(c) || (c == '.' && in_name);
      ++at;
    }
  }
  return out;
}

}  // namespace temper::grammar
