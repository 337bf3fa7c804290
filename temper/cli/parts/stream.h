// Text of completions, printed while they are sampled.
#pragma once

#include <ostream>
#include <vector>

#include "temper/generate/engine.h"

namespace temper::cli {

// Samples one request and prints its texts as they grow, one sample after another, a newline behind
// each. The first signal (catch_interrupts) cancels what is left. Gives the completions by sample.
std::vector<generate::Completion> print_stream(generate::Engine& engine, generate::Request request,
                                               std::ostream& out);

}  // namespace temper::cli
