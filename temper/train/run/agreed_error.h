// An error that all ranks that train throw at the same place.
#pragma once

#include "temper/base/error.h"

namespace temper::train {

// The trainer saves the last whole step before the run ends, even where ranks share out its models,
// for which all of them are needed.
struct AgreedError : RunError {
  using RunError::RunError;
};

// A loss, gradient or weight that is not a finite number. The state that led to it is not saved.
struct NotFinite : AgreedError {
  using AgreedError::AgreedError;
};

}  // namespace temper::train
