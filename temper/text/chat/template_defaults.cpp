#include "temper/text/chat/template_defaults.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string_view>

#include "temper/base/error.h"
#include "temper/text/jinja/template.h"

namespace temper {
namespace {

// Double quotes, and escapes that Python and Jinja read alike; line ends would be changed if they
// stood there as they are.
void append_text(std::string_view text, std::string& out) {
  out += '"';
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      (out += '\\') += c;
    } else if (code < 0x20 || code == 0x7f) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\x%02x", static_cast<unsigned>(code));
      out += escaped;
    } else {
      out += c;
    }
  }
  out += '"';
}

void append_literal(const Json& value, std::string& out) {
  const char* separator = "";
  if (value.is_null()) {
    out += "none";
  } else if (value.is_string()) {
    append_text(value.get_ref<const std::string&>(), out);
  } else if (value.is_array()) {
    out += '[';
    for (const Json& item : value) {
      out += separator;
      append_literal(item, out);
      separator = ", ";
    }
    out += ']';
  } else if (value.is_object()) {
    out += '{';
    for (const auto& [name, item] : value.items()) {
      out += separator;
      append_text(name, out);
      out += ": ";
      append_literal(item, out);
      separator = ", ";
    }
    out += '}';
  } else {
    out += dump_json(value);  // true, false and numbers are written as in JSON
  }
}

std::string literal(const Json& value) {
  std::string out;
  append_literal(value, out);
  return out;
}

bool is_variable(const std::string& name) {
  constexpr std::string_view kWords[] = {"and", "or", "not", "in", "is", "if", "elif", "else"};
  // The arguments of the call itself, which no variable replaces.
  constexpr std::string_view kArguments[] = {"messages", "tools", "add_generation_prompt"};
  if (std::ranges::find(kWords, name) != std::end(kWords) ||
      std::ranges::find(kArguments, name) != std::end(kArguments))
    return false;
  const bool is_word = std::all_of(name.begin(), name.end(), [](char c) {
    const auto code = static_cast<unsigned char>(c);
    return c == '_' || code >= 0x80 || (c >= '0' && c <= '9') ||
           ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
  });
  if (!is_word) return false;
  try {
    jinja::JinjaTemplate::parse("{% set " + name + " = 0 %}", name);
  } catch (const DataError&) {
    return false;
  }
  return true;
}

// Text that a tag at the template's beginning would find at the start of a line, as white space
// that lstrip_blocks takes.
bool begins_with_space(const std::string& source) {
  return !source.empty() && (source[0] <= ' ' || source[0] == 0x7f);
}

}  // namespace

std::string with_default_variables(const std::string& source, const Json& variables,
                                   const Json& given) {
  std::string head;
  for (const auto& [name, value] : variables.items()) {
    if (!is_variable(name)) continue;
    head += "{%- if " + name + " is not defined";
    if (given.contains(name)) head += " or " + name + " == " + literal(given[name]);
    head += " %}{%- set " + name + " = " + literal(value) + " %}{%- endif %}";
  }
  if (head.empty()) return source;
  // trim_blocks takes the line end, and the template begins a line as it did.
  return head + (begins_with_space(source) ? "\n" : "") + source;
}

}  // namespace temper
