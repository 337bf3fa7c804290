#include "temper/preference/config.h"

#include "temper/preference/losses.h"

namespace temper {

template <>
inline constexpr std::array enum_names<preference::PreferenceSection::Reference> = {
    "auto", "adapter_off", "model", "precomputed", "none"};
template <>
inline constexpr std::array enum_names<preference::PreferenceSection::TrainOn> = {"completion",
                                                                                  "all"};

}  // namespace temper

namespace temper::preference {

using ReferenceKind = PreferenceSection::Reference;

void PreferenceSection::fields(Fields& f) {
  f.add("loss", loss, "dpo's loss (temper list losses)", one_of(losses().names()));
  f.add("beta", beta,
        "dpo: strength of the implicit KL constraint to the reference; scales the implicit rewards",
        above(0));
  f.add("lambda", lambda, "orpo: weight of the odds-ratio loss", at_least(0));
  f.add("label_smoothing", label_smoothing,
        "dpo: assumed share of flipped preference labels (sigmoid: cDPO; robust; simpo)",
        between(0, 0.5));
  f.add("simpo_gamma", simpo_gamma, "dpo, loss simpo: target reward margin");
  f.add("desirable_weight", desirable_weight,
        "dpo, loss kto: weight of desirable completions (lambda_D)", at_least(0));
  f.add("undesirable_weight", undesirable_weight,
        "dpo, loss kto: weight of undesirable completions (lambda_U)", at_least(0));
  f.add("train_on", train_on,
        "orpo: tokens of the negative log-likelihood; all: prompt and completion");
  f.add(
      "reference", reference,
      "dpo: the reference: auto (the initial policy), adapter_off (the base without its adapter), "
      "model (reference_model), precomputed (log-probabilities of the initial policy or of "
      "reference_model, computed once before training), none");
  f.add("reference_model", reference_model, "dpo: directory of a separate reference model");
  f.add("center_rewards_coefficient", center_rewards_coefficient,
        "reward: coefficient of the mean squared sum of both rewards of a pair, which centers them "
        "at 0; "
        "0: none",
        at_least(0));
}

void PreferenceConfig::fields(Fields& f) {
  RunConfig::fields(f);
  f.add("preference", preference, "preference losses");
}

std::vector<std::string> PreferenceConfig::evaluated_metrics() const {
  const std::vector<std::string> grouped{"loss", "reward_chosen", "reward_rejected", "margin",
                                         "accuracy"};
  std::vector<std::string> metrics = grouped;
  metrics.push_back("rows");
  if (!is_scalar()) metrics.insert(metrics.end(), {"logps/chosen", "logps/rejected"});
  if (verb == "orpo") metrics.push_back("log_odds_ratio");
  if (is_unpaired()) metrics.push_back("kl");
  return with_groups(std::move(metrics), grouped);
}

bool PreferenceConfig::is_unpaired() const {
  return verb == "dpo" && losses().find(preference.loss).unpaired;
}

bool PreferenceConfig::has_reference() const {
  return verb == "dpo" && preference.reference != ReferenceKind::kNone &&
         losses().find(preference.loss).reference;
}

void PreferenceConfig::complete() {
  RunConfig::complete();
  PreferenceSection& p = preference;
  if (p.reference_model && p.reference == ReferenceKind::kAuto) p.reference = ReferenceKind::kModel;
  if (train.eval_samples > 0)
    warnings.push_back(str(where("train.eval_samples"), " has no effect with ", *verb));
  // A resolved config has every key: one with its default says nothing.
  const PreferenceSection standard;
  const auto idle = [this](bool is_default, const char* key) {
    if (!is_default)
      warnings.push_back(str(where(str("preference.", key)), " has no effect with ", *verb));
  };
  if (verb != "dpo") {
    idle(p.loss == standard.loss, "loss");
    idle(p.reference == standard.reference && !p.reference_model, "reference");
    idle(p.simpo_gamma == standard.simpo_gamma, "simpo_gamma");
    idle(p.label_smoothing == standard.label_smoothing, "label_smoothing");
    idle(p.beta == standard.beta, "beta");
  }
  if (verb != "orpo") {
    idle(p.lambda == standard.lambda, "lambda");
    idle(p.train_on == standard.train_on, "train_on");
  }
  if (verb != "reward")
    idle(p.center_rewards_coefficient == standard.center_rewards_coefficient,
         "center_rewards_coefficient");
  if (verb != "dpo") return;
  const PreferenceLoss& loss = losses().find(p.loss, where("preference.loss"));
  if (p.label_smoothing > 0 && !loss.smoothed)
    warnings.push_back(
        str(where("preference.label_smoothing"), " has no effect with preference.loss: ", p.loss));
}

void PreferenceConfig::validate_dpo() const {
  const PreferenceSection& p = preference;
  const PreferenceLoss& loss = losses().find(p.loss, where("preference.loss"));
  require(p.loss != "robust" || p.label_smoothing < 0.5, "preference.label_smoothing", "found ",
          p.label_smoothing, ", expected less than 0.5 with preference.loss: robust");
  const bool named =
      p.reference == ReferenceKind::kModel || p.reference == ReferenceKind::kPrecomputed;
  require(p.reference != ReferenceKind::kModel || p.reference_model, "preference.reference",
          "found model, but preference.reference_model names no directory");
  require(!p.reference_model || named, "preference.reference_model",
          "preference.reference does not read it; expected reference: model or precomputed");
  require(p.reference != ReferenceKind::kAdapterOff || has_adapter(), "preference.reference",
          "found adapter_off, but no adapter trains (adapter.method is none); auto keeps a copy of "
          "the model");
  require(
      loss.reference || p.reference == ReferenceKind::kAuto || p.reference == ReferenceKind::kNone,
      "preference.reference", p.loss, " has no reference; leave the key out");
  require(
      !loss.unpaired || train.batch_size > 1, "train.batch_size",
      "found 1, expected at least 2: ", p.loss,
      " estimates its divergence from completions after prompts of other rows of the batch, and "
      "one row's own would make its loss a constant");
  require(!loss.unpaired || p.reference != ReferenceKind::kPrecomputed, "preference.reference",
          "found precomputed, expected auto, adapter_off or model: ", p.loss,
          " compares completions of other prompts, which change from step to step");
}

std::string PreferenceConfig::no_reference_role() const {
  const PreferenceSection& p = preference;
  if (verb != "dpo") return RunConfig::no_reference_role();
  if (p.reference == ReferenceKind::kNone ||
      !losses().find(p.loss, where("preference.loss")).reference)
    return "this loss has no reference";
  if (p.reference == ReferenceKind::kPrecomputed)
    return "preference.reference: precomputed computes it before training";
  return {};
}

void PreferenceConfig::validate() const {
  RunConfig::validate();
  require(train.z_loss == 0, "train.z_loss", "found ", train.z_loss,
          ", expected 0: only sft's loss has this term");
  require(
      data.train_on != TrainOn::kAll, "data.train_on",
      "found all: completions are compared, not prompts; orpo's likelihood may count the prompt "
      "(preference.train_on: all)");
  if (verb == "dpo") validate_dpo();
}

}  // namespace temper::preference
