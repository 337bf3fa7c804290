#include "temper/text/jinja/parse/token_cursor.h"

namespace temper::jinja {

std::string TokenCursor::describe() const {
  switch (token().kind) {
    case Kind::kText:
      return "template text";
    case Kind::kPrintBegin:
      return "'{{'";
    case Kind::kPrintEnd:
      return "'}}'";
    case Kind::kBlockBegin:
      return "'{%'";
    case Kind::kBlockEnd:
      return "'%}'";
    case Kind::kString:
      return "a string";
    case Kind::kInteger:
    case Kind::kFloat:
      return "a number";
    case Kind::kEnd:
      return "the end of the template";
    default:
      return "'" + token().text + "'";
  }
}

}  // namespace temper::jinja
