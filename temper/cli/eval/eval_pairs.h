// How a model ranks pairs of completions.
#pragma once

#include "temper/cli/parts/options.h"

namespace temper::cli {

// Prints accuracy (chosen above rejected, ties not) and margin over the pairs, as a table or as
// JSON. Gives the exit status.
int rank_pairs(const ModelFlags& model, const InputFlags& input, bool json);

}  // namespace temper::cli
