// The exception of work that was asked to stop.
#pragma once

#include "temper/base/error.h"

namespace temper {

// The work was asked to stop, by a signal or by whoever waits for it, and nothing failed. The
// program then exits with 128 + the signal's number, not with the status of a failure.
struct Stopped : RunError {
  using RunError::RunError;
};

}  // namespace temper
