// What code inside of a unit (unit.h) asks about its run.
#pragma once

#include <vector>

#include "temper/nn/module.h"

namespace temper::nn {

// Whether this thread is in a unit's forward function that runs again in the backward pass: what
// that function gives is not read then, only differentiated.
bool is_run_again();

// What modules train under adapters (nn::Context::adapter), of which a module does not list copies.
std::vector<Parameter*> trainable_parameters(const std::vector<Module*>& modules,
                                             const std::vector<int>& adapters);

}  // namespace temper::nn
