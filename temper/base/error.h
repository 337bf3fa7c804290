// Errors that the library throws on purpose; exceptions of the standard library and of LibTorch may
// pass through it. It never prints, exits or aborts.
//
//   ConfigError  what the user typed or configured is wrong           -> exit status 2
//   DataError    a file or a row of the user's is wrong ("FILE:LINE") -> exit status 2
//   RunError     something failed while running                       -> exit status 1
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace temper {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
class ConfigError : public Error {
 public:
  using Error::Error;
};
class DataError : public Error {
 public:
  using Error::Error;
};
class RunError : public Error {
 public:
  using Error::Error;
};

// Concatenates its arguments as an ostream would print them.
template <class... Parts>
std::string str(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return std::move(out).str();
}

// Throws Kind with the concatenated parts unless cond holds. Say what was found, what was expected
// and, where known, a hint: check<DataError>(n > 0, path, ":", line, ": empty row; expected a JSON
// object").
template <class Kind = RunError, class... Parts>
void check(bool cond, const Parts&... parts) {
  if (!cond) [[unlikely]]
    throw Kind(temper::str(parts...));
}

}  // namespace temper
