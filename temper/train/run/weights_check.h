// Whether ranks that should hold the same weights do: a host with other files, or whose memory or
// processor errs, is found instead of trained with.
#pragma once

#include <cstdint>
#include <memory>

#include "temper/base/error.h"
#include "temper/dist/mesh.h"
#include "temper/train/hooks.h"
#include "temper/train/roles/roles.h"

namespace temper::train {

// Ranks hold different weights. Which of them are right is not known, so nothing is saved.
struct WeightsDiffer : RunError {
  using RunError::RunError;
};

// Compares hashes (XXH3, 64 bits) of what several ranks hold alike: of every parameter before the
// first step, and, unless `every` is 0, of those that train and of the optimizers' state after each
// `every` steps and before anything is saved. Parts of what is sharded are compared with the same
// parts on other ranks. Quantized matrices are left out: each processor has them packed for itself.
// All ranks throw a WeightsDiffer that names two of them, their hosts, and the first tensor that
// differs. `roles` outlives the hook.
std::unique_ptr<Hook> weights_check(int64_t every, Roles& roles, const dist::Mesh& mesh);

}  // namespace temper::train
