// Processes by a variable of their environment, which all that a process starts inherits: also what
// left its process group, as a daemon does.
#pragma once

#include <cstdint>
#include <string>

namespace temper::process {

// "NAME=value" that no process of this machine has yet.
std::string new_mark();

// Kills this user's processes that were started with this variable, and those that they start
// meanwhile. Returns how many. (One that clears its environment is not found.)
int64_t kill_marked(const std::string& mark);

}  // namespace temper::process
