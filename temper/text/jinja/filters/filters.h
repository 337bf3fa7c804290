// The tables of filters and tests.
#pragma once

#include <string>

#include "temper/text/jinja/objects.h"

namespace temper::jinja {

using FilterFunction = Value (*)(Runtime&, Value input, Arguments);
using TestFunction = bool (*)(Runtime&, const Value& input, Arguments);

// Null when there is none of that name.
FilterFunction find_filter(const std::string& name);
TestFunction find_test(const std::string& name);

}  // namespace temper::jinja
