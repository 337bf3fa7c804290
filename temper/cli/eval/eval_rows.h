// What `temper eval` measures on rows as they are, without sampling.
#pragma once

#include <cstdint>
#include <string>

#include "temper/cli/parts/options.h"

namespace temper::cli {

// Prints how a model ranks pairs of completions: accuracy (chosen above rejected, ties not) and
// margin over the pairs, as a table or as JSON. Gives the exit status.
int rank_pairs(const ModelFlags& model, const InputFlags& input, bool json);

struct PerplexityFlags {
  bool on = false;
  int64_t max_length = 1024;
  TrainOn train_on = TrainOn::kAuto;
};

// Prints how well a model predicts rows of supervised tuning: supervised tokens, their mean
// negative log-likelihood in nats and its exponential, as a table or as JSON: eval/loss of a
// `temper sft` run on the same rows, by the same code. Gives the exit status.
int print_perplexity(const ModelFlags& model, const InputFlags& input, const PerplexityFlags& flags,
                     bool json);

}  // namespace temper::cli
