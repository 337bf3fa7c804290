// Patterns of names, as a config writes them: `*` stands for any characters, dots and slashes too,
// `?` for one.
#pragma once

#include <string_view>

namespace temper {

// Whether the pattern describes the whole name. Takes at most |pattern| x |name| steps.
bool matches_glob(std::string_view pattern, std::string_view name);

}  // namespace temper
