#include "temper/rl/algorithms/policy_keys.h"

#include <ATen/ATen.h>

#include "temper/rl/algorithms/gae.h"

namespace temper {

template <>
inline constexpr std::array enum_names<train::KlEstimator> = {"k1", "k2", "k3"};
template <>
inline constexpr std::array enum_names<rl::Aggregation> = {
    "token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"};

}  // namespace temper

namespace temper::rl {

void PolicyKeys::fields(Fields& f, const char* beta_help) {
  f.add("beta", beta, beta_help, at_least(0));
  f.add("kl_estimator", kl_estimator,
        "estimator of that KL, with d = ref - logp: k1 = -d, k2 = d^2 / 2, k3 = exp(d) - d - 1");
  f.add("epsilon_low", epsilon_low, "the importance ratio is clipped below 1 - epsilon_low",
        at_least(0));
  f.add("epsilon_high", epsilon_high, "the importance ratio is clipped above 1 + epsilon_high",
        at_least(0));
  f.add("dual_clip", dual_clip,
        "dual-clip PPO: for negative advantages A, a token's loss is at most dual_clip |A| (often "
        "3, at least 1); 0: off",
        at_least(0));
  f.add("loss_aggregation", loss_aggregation,
        "mean over all tokens (token-mean), or over completions of their tokens' mean, sum, or sum "
        "over max_new_tokens (seq-mean-token-mean, -sum, -sum-norm)");
  f.add("entropy_bonus", entropy_bonus,
        "coefficient of the mean token entropy, which is subtracted from the loss", at_least(0));
}

train::Loss PolicyKeys::loss_of(const at::Tensor& loss_M, const at::Tensor& outside_M,
                                const TokenBatch& b, double kl_weight) const {
  train::Loss loss;
  loss.terms.push_back(policy_term(loss_M, b));
  const auto add_mean = [&](const char* name, const at::Tensor& value_M) {
    loss.means.push_back({name, train::ordered_sum(value_M), static_cast<double>(value_M.numel())});
  };
  if (kl_weight != 0) {
    const at::Tensor kl_M = kl(kl_estimator, b.logp_M, b.ref_logp_M);
    loss.terms.push_back(
        {.name = "kl", .coefficient = kl_weight, .value = kl_M, .weight = b.weight_M});
    add_mean("kl", kl_M);
  }
  if (entropy_bonus != 0)
    loss.terms.push_back({.name = "entropy",
                          .coefficient = -entropy_bonus,
                          .value = b.entropy_M,
                          .weight = b.weight_M});
  add_mean("clip_fraction", outside_M);
  return loss;
}

train::Loss PolicyKeys::clipped_loss(const at::Tensor& ratio_M, const TokenBatch& b,
                                     double kl_weight) const {
  return loss_of(train::clipped_surrogate(ratio_M, b.advantage_M, bounds(), dual_clip),
                 train::outside_trust_region(ratio_M.detach(), b.advantage_M, bounds()), b,
                 kl_weight);
}

std::vector<double> PolicyKeys::token_kl(const Segment& segment) const {
  if (beta == 0) return std::vector<double>(segment.tokens.size());
  const at::Tensor kl_T = kl(kl_estimator, at::tensor(segment.old_logp, at::kDouble),
                             at::tensor(segment.ref_logp, at::kDouble));
  return {kl_T.const_data_ptr<double>(), kl_T.const_data_ptr<double>() + kl_T.numel()};
}

double PolicyKeys::mean_token_kl(std::span<const Segment* const> segments) const {
  std::vector<double> all;
  for (const Segment* segment : segments)
    for (const double one : token_kl(*segment)) all.push_back(one);
  return mean_of(all);
}

}  // namespace temper::rl
