// Finds values of a weight file that are not finite.
#pragma once

#include <cstddef>
#include <optional>

#include "temper/io/tensor_view.h"

namespace temper {

// The index of the first value that is NaN or infinite; nullopt: none is, or the dtype has no such
// values. Pages of a mapped view are released as they are read, 64 MiB later at most.
std::optional<size_t> find_not_finite(const TensorView& view);

}  // namespace temper
