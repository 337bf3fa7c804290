// Finds processes by a variable of their environment. Everything that a process starts inherits it,
// also what leaves its process group, as a daemon does.
#pragma once

#include <cstdint>
#include <string>

namespace temper::process {

// A new mark, "NAME=value", that no process of this machine has yet.
std::string new_mark();

// Kills this user's processes that were started with this variable, and those that they start
// meanwhile. Returns how many. (A process that clears its environment is not found.)
int64_t kill_marked(const std::string& mark);

}  // namespace temper::process
