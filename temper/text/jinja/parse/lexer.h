// Splits a template into text and tokens, as jinja2's lexer does with trim_blocks and
// lstrip_blocks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "temper/text/jinja/value.h"

namespace temper::jinja {

struct Token {
  enum class Kind {
    kText,        // template text, white space already trimmed
    kPrintBegin,  // {{
    kPrintEnd,    // }}
    kBlockBegin,  // {%
    kBlockEnd,    // %}
    kName,
    kString,   // unescaped
    kInteger,  // beyond 64 bits its decimal digits are in `text`
    kFloat,
    kOperator,  // its spelling is in `text`
    kEnd,
  };
  Kind kind;
  int line;
  std::string text;
  int64_t integer = 0;
  double real = 0;
};

// A template that is not well formed, at one of its lines.
class SyntaxFailure : public Failure {
 public:
  SyntaxFailure(int line, const std::string& message) : Failure(message), line_(line) {}
  int line() const { return line_; }

 private:
  int line_;
};

// All tokens, kEnd last. Throws SyntaxFailure. The source must be valid UTF-8.
std::vector<Token> tokenize(std::string_view source);

}  // namespace temper::jinja
