// The losses of the Tinker API, made of the terms of train/policy_terms.h. All are sums over the
// targets of a request, in lp, the model's log-probabilities of the targets; `A` is a target's
// advantage, `old` its log-probability when it was sampled, r = exp(lp - old), sg() has no
// gradient:
//
//   cross_entropy        - Σ weight lp
//   importance_sampling  - Σ r A
//   ppo                  - Σ min(r A, clip(r, low, high) A)          (Schulman et al., 1707.06347)
//   cispo                - Σ sg(clip(r, low, high)) lp A             (MiniMax-M1, 2506.13585)
//   dro                  - Σ (lp A - beta/2 (lp - old)²)             (Richemond et al., 2405.19107)
//   gspo                 - Σ min(s A, clip(s, low, high) A), with the datum's ratio
//                          s = exp(mean (lp - old)) over the targets that sequence_ratio_mask
//                          marks, or else those whose advantage is not 0, and each target's
//                          gradient through its own lp (GSPO-token, 2507.18071, section 4.3)
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "temper/tinker/wire.h"
#include "temper/train/policy_terms.h"

namespace temper::tinker {

// Some targets of a datum; float64 [M]. What the loss does not read is undefined.
struct TargetNumbers {
  at::Tensor logp_M, old_logp_M, advantage_M, weight_M;
  double mean_log_ratio = 0;  // log s of the datum, under gspo
};

struct LossSpec {
  // The targets' losses, differentiable with respect to logp_M.
  at::Tensor (*terms)(const LossSpec& spec, const TargetNumbers& t) = nullptr;
  bool reads_weights = false;  // and no log-probabilities and advantages
  bool reads_mask = false;     // sequence_ratio_mask
  train::RatioBounds bounds;
  double beta = 0;
};

// Throws DataError for an unknown loss, saying what there is, and for a key of its configuration
// that it does not read.
LossSpec read_loss(const std::string& name, const LossConfig& config);

// What a loss reads of a datum: its targets, those of one position after the other.
struct Targets {
  int64_t positions = 0;          // tokens of the datum
  int64_t columns = 0;            // targets a position: 0 where target_tokens has one dimension
  std::vector<int64_t> position;  // of each target
  std::vector<int64_t> token;     // of each target
  std::vector<size_t> cell;       // of each target, in the row-major [positions, columns]
  std::vector<float> weight;      // of cross_entropy
  std::vector<float> old_logprob, advantage;  // of the others
  std::vector<float> ratio_mask;              // of gspo; empty: as `advantage`
  // Whether the loss has a gradient: some weight or advantage is not 0, or dro's beta pulls towards
  // the old log-probabilities.
  bool trains(const LossSpec& loss) const;

  size_t size() const { return token.size(); }
};

// Throws DataError for an input that is missing, unknown, not finite, or not of the targets' shape,
// and for tokens outside the vocabulary. `where` begins the message.
Targets read_targets(const LossSpec& loss, const WireDatum& datum, int64_t vocabulary,
                     const std::string& where);

// The loss of a datum, and its derivative by each of its log-probabilities.
struct LossValue {
  double loss = 0;
  std::vector<float> gradient;
};
LossValue loss_of(const LossSpec& spec, const Targets& targets, std::span<const float> logprobs);

}  // namespace temper::tinker
