// A policy-gradient algorithm: how the rewards of a group become advantages, and what an update's
// loss is. One file each, and one line in the table in algorithm.cpp; programs that link Temper add
// theirs with register_algorithm. What a paper sets for the keys of `rl` stands in
// base/run_config.cpp; a registered algorithm begins with grpo's values.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "temper/base/run_config.h"
#include "temper/rl/terms.h"

namespace temper::rl {

struct Algorithm {
  const char* name;
  // Advantages of one group's completions from their rewards; at least one. A group without
  // variance gets zeros.
  std::vector<double> (*advantages)(const RlSection& rl, std::span<const double> rewards);
  Loss (*loss)(const RlSection& rl, const CompletionBatch& batch);
  const char* help;
};

// The built-in ones and those that were registered; `temper list algorithms` prints them.
std::span<const Algorithm> algorithms();
// Throws ConfigError for a name that is taken. Before any run begins.
void register_algorithm(Algorithm algorithm);
// The one that rl.algorithm names. Throws ConfigError naming the nearest one that there is.
const Algorithm& find_algorithm(const RunConfig& config);

// Whether a group has no signal.
bool all_equal(std::span<const double> rewards);

// Group-relative advantages, GRPO's: (r - mean) / (std + 1e-6), std with ddof 1; without the
// division unless scale_rewards.
std::vector<double> group_advantages(const RlSection& rl, std::span<const double> rewards);
// The clipped surrogate with the importance ratio that rl.importance names, and β KL where β > 0.
Loss clipped_policy_loss(const RlSection& rl, const CompletionBatch& batch);

std::vector<double> leave_one_out_advantages(const RlSection& rl, std::span<const double> rewards);
Loss rloo_loss(const RlSection& rl, const CompletionBatch& batch);

// DAPO's soft punishment of length (Yu et al., arXiv 2503.14476, equation 13): 0 up to
// max_new_tokens - buffer tokens, then falling linearly to -1 at max_new_tokens. 0 where there is
// no buffer.
double overlong_penalty(int64_t length, int64_t max_new_tokens, int64_t buffer);

}  // namespace temper::rl
