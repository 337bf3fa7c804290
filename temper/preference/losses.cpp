#include "temper/preference/losses.h"

#include <ATen/ATen.h>

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
                           "mismatched rows of the step"}});
  return table;
}

at::Tensor log_odds_ratio(const at::Tensor& chosen_P, const at::Tensor& rejected_P) {
  return (chosen_P - rejected_P) - (log1mexp(chosen_P) - log1mexp(rejected_P));
}

}  // namespace temper::preference
