// Keywords of a JSON schema that completions cannot be held to.
#pragma once

#include <string>

#include "temper/base/json.h"

namespace temper::grammar {

// The first of them, anywhere in the schema; empty: there is none.
std::string unheld_keyword(const Json& schema);

}  // namespace temper::grammar
