// Where sampling and training part, if they ever do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "temper/models/model.h"

namespace temper::generate {

// Runs a completion through both paths, token by token with a cache and as a forest of prompt and
// completion, and names the first layer whose input differs in a bit at the earliest such token:
// "the input of layer 3 differs at position 17 by up to 2e-7". Says so where they agree now: then
// the weights changed in between.
std::string first_difference(models::CausalLM& model, const std::vector<int32_t>& prompt,
                             const std::vector<int32_t>& completion);

}  // namespace temper::generate
