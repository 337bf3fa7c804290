// Groups of completions through the model: the prompt once, with its completions as children.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "temper/dist/group.h"
#include "temper/models/model.h"
#include "temper/rl/rollout.h"

namespace temper::rl {

// Completions of one forward pass, and where their tokens' log-probabilities come from. Suffix _M:
// the completions' tokens one after the other.
struct Pass {
  std::vector<size_t> rollouts;  // indices into the batch, groups together
  std::shared_ptr<Forest> forest = std::make_shared<Forest>();
  std::vector<int64_t> at_M, target_M;  // the hidden row before each token, and the token
  std::vector<int64_t> start_C1{0};  // completion c of the pass has tokens [start[c], start[c + 1])

  // log-probabilities at the temperature; entropy where asked for.
  // `adapter` is the context's.
  ops::TokenLogp token_logp(models::CausalLM& model, double temperature, bool entropy,
                            bool recompute = false, int adapter = 0) const;
};

// Fills passes of at most max_tokens with the given completions of the batch: a group stays whole
// where it fits, else its completions are split and each part has the prompt again. A completion is
// never split; one that is too long is alone. Deterministic. With ranks, the share of one rank: all
// ranks together get every completion once.
std::vector<Pass> plan_passes(const RolloutBatch& batch, std::span<const size_t> chosen,
                              int64_t max_tokens, int rank = 0, int ranks = 1);

// Where each completion's tokens stand in a flat list of all tokens of the batch: completion i at
// [offset[i], offset[i + 1]).
std::vector<int64_t> token_offsets(const RolloutBatch& batch);

// Log-probabilities of all tokens of the batch under a model, flat, without gradients. The ranks
// share the work.
at::Tensor score_rollouts(models::CausalLM& model, const RolloutBatch& batch, int64_t max_tokens,
                          double temperature, dist::Group& group, int adapter = 0);

}  // namespace temper::rl
