// How well a model predicts rows of supervised tuning.
#pragma once

#include <cstdint>
#include <string>

#include "temper/cli/parts/options.h"

namespace temper::cli {

struct PerplexityFlags {
  bool on = false;
  int64_t max_length = 1024;
  std::string train_on = "auto";
};

// Prints supervised tokens, their mean negative log-likelihood in nats and its exponential, as a
// table or as JSON: eval/loss of a `temper sft` run on the same rows, by the same code. Gives the
// exit status.
int print_perplexity(const ModelFlags& model, const InputFlags& input, const PerplexityFlags& flags,
                     bool json);

}  // namespace temper::cli
