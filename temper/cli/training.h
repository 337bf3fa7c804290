// What the training verbs have in common with what looks at their configs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "temper/cli/verbs.h"

namespace temper::cli {

// Looks at a training verb's run before it starts.
std::unique_ptr<Command> check_command();

// The sections of other training verbs, which this one passes over: a config file may serve
// several.
std::vector<std::string> other_sections(const std::string& verb);

}  // namespace temper::cli
