#include "temper/grammar/gbnf.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <set>

namespace temper::grammar {
namespace {

constexpr std::string_view kAnyCharacter = "[\\u0000-\\U0010ffff]";

bool is_of_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.';
}

// One past the string, class or comment that begins at `begin`.
size_t end_of_quoted(std::string_view text, size_t begin) {
  const char close = text[begin] == '[' ? ']' : text[begin] == '#' ? '\n' : text[begin];
  size_t at = begin + 1;
  while (at < text.size() && text[at] != close) at += text[at] == '\\' && close != '\n' ? 2 : 1;
  return std::min(at + 1, text.size());
}

// The parts of a grammar in order: words of names and dots; strings, classes and comments; single
// other characters.
void each_part(std::string_view text,
               const std::function<void(std::string_view part, size_t end)>& body) {
  for (size_t at = 0; at < text.size();) {
    size_t end = at + 1;
    if (text[at] == '"' || text[at] == '[' || text[at] == '#')
      end = end_of_quoted(text, at);
    else if (is_of_name(text[at]))
      while (end < text.size() && is_of_name(text[end])) ++end;
    body(text.substr(at, end - at), end);
    at = end;
  }
}

std::set<std::string_view> names_of_rules(std::string_view text) {
  std::set<std::string_view> names;
  each_part(text, [&](std::string_view part, size_t end) {
    const size_t next = text.find_first_not_of(" \t", end);
    if (is_of_name(part[0]) && next != text.npos && text.substr(next).starts_with("::="))
      names.insert(part);
  });
  return names;
}

}  // namespace

std::string without_dots(std::string_view gbnf) {
  const std::set<std::string_view> names = names_of_rules(gbnf);
  std::string out;
  each_part(gbnf, [&](std::string_view part, size_t) {
    if (!is_of_name(part[0]) || names.contains(part)) {
      out += part;
      return;
    }
    for (const char c : part) c == '.' ? out += kAnyCharacter : out += c;
  });
  return out;
}

}  // namespace temper::grammar
