// One optimizer update's forward and backward passes.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "temper/rl/algorithm.h"
#include "temper/rl/forward.h"
#include "temper/train/run.h"

namespace temper::rl {

// A rollout batch with what stays the same over its updates. Flat tensors hold all tokens of the
// batch (token_offsets).
struct TrainingBatch {
  RolloutBatch batch;
  at::Tensor old_logp;      // undefined: the update's own, the policy has not moved since
  at::Tensor sampler_logp;  // what the rollouts carry; undefined where they carry none
  at::Tensor ref_logp;      // undefined without a KL term
};

struct UpdateStatistics {
  train::StepTotals totals;
  double kl = 0, entropy = 0, clip_fraction = 0;  // means over the update's completion tokens
  // Largest |sampler's - trainer's own log-probability| of the update, and where: the flat token,
  // -1 where they agree.
  double sampler_trainer_max_abs_diff = 0;
  int64_t differs_at = -1;
};

// Leaves the gradients of the update's loss in the parameters (this rank's share of them).
// `compare` asks for sampler_trainer_max_abs_diff. The numbers are the same on all ranks and for
// any micro_batch_tokens but for rounding.
UpdateStatistics forward_backward(train::Run& run, const Algorithm& algorithm,
                                  const TrainingBatch& batch, std::span<const size_t> chosen,
                                  bool compare);

}  // namespace temper::rl
