// Problems of a tool's description, and of a call of it.
#pragma once

#include <string>

#include "temper/base/json.h"
#include "temper/env/config.h"

namespace temper::env {

// A name that a call cannot spell, or parameters that are no JSON schema of an object. `key` names
// the tool. Empty: nothing.
std::string find_tool_problem(const ToolSection& tool, const std::string& key);

// What makes `parameters` no JSON schema of an object. `key` names them. Empty: nothing.
std::string find_parameters_problem(const Json& parameters, const std::string& key);

// Why the program is not started: the arguments are no object, or lack what `parameters` requires.
// Empty: it is.
std::string find_call_problem(const ToolSection& tool, const Json& arguments);

}  // namespace temper::env
