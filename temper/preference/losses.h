// Losses over preferences, one function each. Suffix _C: completions that are preferred, _R: those
// that are not; of pairs both are [P] and stand in the same order.
#pragma once

#include <ATen/core/Tensor.h>

#include "temper/base/registry.h"
#include "temper/preference/config.h"

namespace temper::preference {

// The inputs of a loss, float64: log π_θ(y|x) - log π_ref(y|x) of each completion, summed over its
// tokens, or, where PreferenceLoss::averages, their mean.
struct Ratios {
  at::Tensor chosen_C, rejected_R;
  double kl = 0;  // estimate of KL(π_θ ‖ π_ref), at least 0, where PreferenceLoss::unpaired
  at::Tensor chosen_logp_C = {};  // log π_θ(y|x), summed
  double chosen_tokens = 1;       // mean number of tokens of the step's chosen completions
  // where PreferenceLoss::transports: log π_θ of chosen minus that of rejected, and the reference's
  // such difference that has the same rank among those of the step
  at::Tensor policy_P = {}, transported_P = {};
};

struct PreferenceLoss {
  // The loss of each pair [P], or, where `unpaired`, of each completion [C + R].
  at::Tensor (*of)(const Ratios& ratios, const PreferenceSection& section);
  bool averages = false;           // log-probabilities are means over the completion
  bool unpaired = false;           // completions stand alone, and the loss reads `kl`
  bool reference = true;           // false: π_ref is left out
  bool smoothed = false;           // label_smoothing is read
  bool transports = false;         // Ratios::transported_P is read
  bool equal_sides_train = false;  // it has a gradient where both sides are the same tokens
};

// The table of losses, by the name in preference.loss; `temper list losses` prints it.
const Registry<PreferenceLoss>& losses();

// Whether one of the losses of `choice` has this property.
bool any_loss(const LossChoice& choice, bool PreferenceLoss::* property);

// log(p / (1 - p)) of chosen minus that of rejected, of mean log-probabilities log p < 0 (ORPO,
// Hong et al., arXiv 2403.07691, equations 4 and 7).
at::Tensor log_odds_ratio(const at::Tensor& chosen_P, const at::Tensor& rejected_P);

}  // namespace temper::preference
