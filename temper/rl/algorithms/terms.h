// What an algorithm's loss reads of an update, and how it weighs tokens; what it says of each is
// composed of the functions of train/policy_terms.h. Suffixes: _M the sampled tokens of some
// episodes one after the other, _C the episodes. Losses are differentiable with respect to logp_M,
// entropy_M and value_M only. How rewards become advantages is in credit.h and gae.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "temper/train/loss.h"
#include "temper/train/policy_terms.h"

namespace temper::rl {

enum class Importance { kToken, kSequence };
enum class TurnCredit { kEpisode, kTurn };
enum class RewardAggregation { kSumThenNormalize, kNormalizeThenSum };
enum class Aggregation { kTokenMean, kSeqMeanTokenSum, kSeqMeanTokenMean, kSeqMeanTokenSumNorm };

// Some episodes of one update, whole.
struct TokenBatch {
  at::Tensor logp_M;      // [tokens] log-probabilities under the policy
  at::Tensor old_logp_M;  // log-probabilities at the start of the rollout batch; a constant
  // log-probabilities under the reference model; undefined if the algorithm needs none
  at::Tensor ref_logp_M;
  at::Tensor entropy_M;     // entropy of the policy's next-token distribution, nats
  at::Tensor advantage_M;   // advantage of the token
  at::Tensor value_M;       // the critic's value before the token; undefined without a critic
  at::Tensor old_value_M;   // the critic's value at the start of the rollout batch; a constant
  at::Tensor return_M;      // the critic's target; a constant
  at::Tensor weight_M;      // weight of the token in the update's loss: Algorithm::token_weights()
  at::Tensor correction_M;  // importance weight, after truncation or masking
                            // (ImportanceCorrection); undefined: 1
  std::vector<int64_t> cu_length_C1;  // episode c has tokens [cu_length[c], cu_length[c + 1])
  double update_tokens = 0;           // sampled tokens of the whole update, over passes and ranks

  // The mean of x_M over each completion, at each of its tokens; a constant.
  at::Tensor completion_means(const at::Tensor& x_M) const;
};

// The weight of each token in the loss, by episode: token-mean 1 / ΣL; seq-mean-token-mean
// 1 / (C L_c); seq-mean-token-sum 1 / C; seq-mean-token-sum-norm 1 / (C max_new_tokens).
std::vector<double> aggregate(Aggregation how, std::span<const int64_t> length_C,
                              int64_t max_new_tokens);

// The term `policy`: token losses, times correction_M where other weights or a server sampled.
train::Term policy_term(const at::Tensor& value_M, const TokenBatch& b);

}  // namespace temper::rl
