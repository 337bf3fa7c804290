// Parses a template into its syntax tree.
#pragma once

#include <string_view>

#include "temper/text/jinja/syntax.h"

namespace temper::jinja {

// Throws SyntaxFailure: for what jinja2 refuses as well, for the tags that need other files
// (extends, include, import, block), and for nesting beyond any real template's.
Body parse_template(std::string_view source);

}  // namespace temper::jinja
