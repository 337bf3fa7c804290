#include "temper/preference/losses.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "temper/base/exact_math.h"
#include "temper/ops/pointwise.h"

namespace temper::preference {
namespace {

// h = log-ratio of chosen minus that of rejected: what β scales to the difference of rewards.
at::Tensor difference(const Ratios& r) { return r.chosen_C - r.rejected_R; }

// DPO (Rafailov et al., arXiv 2305.18290, equation 7): -log σ(βh). With label_smoothing ε: cDPO
// (Mitchell 2023), -(1 - ε) log σ(βh) - ε log σ(-βh).
at::Tensor sigmoid(const Ratios& r, const PreferenceSection& s) {
  const at::Tensor x = s.beta * difference(r);
  return -(1 - s.label_smoothing) * ops::log_sigmoid(x) - s.label_smoothing * ops::log_sigmoid(-x);
}

// SLiC-HF (Zhao et al., arXiv 2305.10425) on DPO's ratios, as RSO (Liu et al., arXiv 2309.06657)
// has it: max(0, 1 - βh).
at::Tensor hinge(const Ratios& r, const PreferenceSection& s) {
  return at::relu(1 - s.beta * difference(r));
}

// IPO (Azar et al., arXiv 2310.12036, equation 17): (h - 1 / (2β))², h of log-probabilities
// averaged over each completion.
at::Tensor ipo(const Ratios& r, const PreferenceSection& s) {
  return (difference(r) - 1 / (2 * s.beta)).square();
}

// Robust DPO (Chowdhury et al., arXiv 2403.00409, equation 12): with labels that are flipped in a
// share ε of pairs, (-(1 - ε) log σ(βh) + ε log σ(-βh)) / (1 - 2ε).
at::Tensor robust(const Ratios& r, const PreferenceSection& s) {
  const at::Tensor x = s.beta * difference(r);
  const double e = s.label_smoothing;
  return (-(1 - e) * ops::log_sigmoid(x) + e * ops::log_sigmoid(-x)) / (1 - 2 * e);
}

// SimPO (Meng et al., arXiv 2405.14734, equation 6): -log σ(βh - γ), h of mean log-probabilities
// without a reference. label_smoothing as in cDPO.
at::Tensor simpo(const Ratios& r, const PreferenceSection& s) {
  const at::Tensor x = s.beta * difference(r) - s.simpo_gamma;
  return -(1 - s.label_smoothing) * ops::log_sigmoid(x) - s.label_smoothing * ops::log_sigmoid(-x);
}

// KTO (Ethayarajh et al., arXiv 2402.01306, equation 8): λ_D (1 - σ(β(ratio - kl))) of a desirable
// completion, λ_U (1 - σ(β(kl - ratio))) of an undesirable one.
at::Tensor kto(const Ratios& r, const PreferenceSection& s) {
  return at::cat({s.desirable_weight * (1 - ops::sigmoid(s.beta * (r.chosen_C - r.kl))),
                  s.undesirable_weight * (1 - ops::sigmoid(s.beta * (r.kl - r.rejected_R)))});
}

// APO-zero (D'Oosterlinck et al., arXiv 2408.06266, equation 7): 1 - σ(β ratio) of chosen +
// σ(β ratio) of rejected.
at::Tensor apo_zero(const Ratios& r, const PreferenceSection& s) {
  return 1 - ops::sigmoid(s.beta * r.chosen_C) + ops::sigmoid(s.beta * r.rejected_R);
}

// APO-down (the same, equation 8): σ(β ratio) of chosen + 1 - σ(βh).
at::Tensor apo_down(const Ratios& r, const PreferenceSection& s) {
  return ops::sigmoid(s.beta * r.chosen_C) + 1 - ops::sigmoid(s.beta * difference(r));
}

// NCA of a pair (Chen et al., arXiv 2402.05369, section 4), x = β ratio: -log σ(x) of chosen - 1/2
// log σ(-x) of both.
at::Tensor nca_pair(const Ratios& r, const PreferenceSection& s) {
  const at::Tensor chosen = s.beta * r.chosen_C, rejected = s.beta * r.rejected_R;
  return -ops::log_sigmoid(chosen) - 0.5 * ops::log_sigmoid(-chosen) -
         0.5 * ops::log_sigmoid(-rejected);
}

// EXO of a pair (Ji et al., arXiv 2402.00856, equation 16): KL of (σ(βh), σ(-βh)) to
// (1 - ε, ε).
at::Tensor exo_pair(const Ratios& r, const PreferenceSection& s) {
  const at::Tensor x = s.beta * difference(r);
  const double e = s.label_smoothing;
  return ops::sigmoid(x) * (ops::log_sigmoid(x) - exact::log(1 - e)) +
         ops::sigmoid(-x) * (ops::log_sigmoid(-x) - exact::log(e));
}

// SPPO with hard labels (Wu et al., arXiv 2405.00675, equation 4.7, P of 1 and 0): (ratio -
// 1 / (2β))² of chosen + (ratio + 1 / (2β))² of rejected.
at::Tensor sppo_hard(const Ratios& r, const PreferenceSection& s) {
  return (r.chosen_C - 0.5 / s.beta).square() + (r.rejected_R + 0.5 / s.beta).square();
}

// AOT of pairs (Melnyk et al., arXiv 2406.05882, section 3): cDPO's loss of the difference between
// the sorted margins of policy and reference.
at::Tensor aot(const Ratios& r, const PreferenceSection& s) {
  const at::Tensor x = s.beta * (r.policy_P - r.transported_P);
  return -(1 - s.label_smoothing) * ops::log_sigmoid(x) - s.label_smoothing * ops::log_sigmoid(-x);
}

// The negative log-likelihood of chosen, a mean over the tokens of the step: -logp over the mean
// number of tokens.
at::Tensor sft(const Ratios& r, const PreferenceSection&) {
  return -r.chosen_logp_C / r.chosen_tokens;
}

// log(1 - exp x) for x < 0, exact near 0 too. Where x is 0 to the last bit the odds are infinite:
// a bound keeps the gradient finite.
at::Tensor log1mexp(const at::Tensor& x) { return ops::log(-ops::expm1(x.clamp_max(-1e-12))); }

}  // namespace

const Registry<PreferenceLoss>& losses() {
  static const Registry<PreferenceLoss> table(
      "preference loss", {{"sigmoid",
                           {.of = sigmoid, .smoothed = true},
                           "DPO; with label_smoothing, cDPO",
                           "Rafailov et al., arXiv 2305.18290, equation 7; Mitchell, \"A note on "
                           "DPO with noisy preferences\", 2023"},
                          {"hinge",
                           {.of = hinge},
                           "SLiC's hinge on DPO's ratios",
                           "Zhao et al., arXiv 2305.10425; Liu et al. (RSO), arXiv 2309.06657"},
                          {"ipo",
                           {.of = ipo, .averages = true},
                           "IPO: squared distance to a margin of 1 / (2 beta)",
                           "Azar et al., arXiv 2310.12036, equation 17; means over completions, as "
                           "its authors told TRL's"},
                          {"robust",
                           {.of = robust, .smoothed = true},
                           "robust DPO: labels flipped in a share",
                           "Chowdhury et al., arXiv 2403.00409, equation 12"},
                          {"simpo",
                           {.of = simpo, .averages = true, .reference = false, .smoothed = true},
                           "SimPO: mean log-probabilities, a margin, no reference",
                           "Meng et al., arXiv 2405.14734, equation 6"},
                          {"kto",
                           {.of = kto, .unpaired = true},
                           "KTO: single completions that are good or bad, or pairs",
                           "Ethayarajh et al., arXiv 2402.01306, equation 8; the divergence is of "
                           "mismatched rows of the step"},
                          {"apo_zero",
                           {.of = apo_zero},
                           "APO: chosen up, rejected down",
                           "D'Oosterlinck et al., arXiv 2408.06266, equation 7"},
                          {"apo_down",
                           {.of = apo_down, .equal_sides_train = true},
                           "APO: both down, rejected more",
                           "the same, equation 8"},
                          {"nca_pair",
                           {.of = nca_pair, .equal_sides_train = true},
                           "NCA: each completion against noise",
                           "Chen et al., arXiv 2402.05369, section 4"},
                          {"exo_pair",
                           {.of = exo_pair, .smoothed = true},
                           "EXO: reverse KL to labels smoothed by label_smoothing",
                           "Ji et al., arXiv 2402.00856, equation 16"},
                          {"sppo_hard",
                           {.of = sppo_hard, .equal_sides_train = true},
                           "SPPO: squared distances to 1 / (2 beta) and its negative",
                           "Wu et al., arXiv 2405.00675, equation 4.7"},
                          {"aot",
                           {.of = aot, .smoothed = true, .transports = true},
                           "AOT: margins of the step in order, against the reference's",
                           "Melnyk et al., arXiv 2406.05882, section 3"},
                          {"sft",
                           {.of = sft, .reference = false, .equal_sides_train = true},
                           "likelihood of chosen per token, to be added to others",
                           "as in TRL"}});
  return table;
}

bool any_loss(const LossChoice& choice, bool PreferenceLoss::* property) {
  return std::any_of(choice.terms.begin(), choice.terms.end(),
                     [&](const WeightedLoss& term) { return losses().find(term.loss).*property; });
}

at::Tensor log_odds_ratio(const at::Tensor& chosen_P, const at::Tensor& rejected_P) {
  return (chosen_P - rejected_P) - (log1mexp(chosen_P) - log1mexp(rejected_P));
}

}  // namespace temper::preference
