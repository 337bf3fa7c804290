// Errors as the program says them.
#pragma once

#include <functional>
#include <string>

namespace temper::cli {

// Gives what `run` returns, or the exit status of the error that it throws, which is printed to
// standard error with `before` before it.
int with_errors_reported(const std::string& before, const std::function<int()>& run);

}  // namespace temper::cli
