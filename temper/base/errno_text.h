// The cause of a failed system call, for check().
#pragma once

#include <cerrno>
#include <cstring>
#include <ostream>

namespace temper {

// Prints what errno says when the message is made. std::strerror(errno) among the arguments of
// check(::fsync(fd) == 0, ...) may be evaluated before the call and say "Success".
struct ErrnoText {
  friend std::ostream& operator<<(std::ostream& out, const ErrnoText&) {
    return out << std::strerror(errno);
  }
};
inline constexpr ErrnoText errno_text{};

}  // namespace temper
