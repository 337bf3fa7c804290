#include "temper/preference/config.h"

#include <set>

#include "temper/base/error.h"
#include "temper/preference/losses.h"

namespace temper {

template <>
inline constexpr std::array enum_names<preference::PreferenceSection::Reference> = {
    "auto", "adapter_off", "model", "precomputed", "none"};
template <>
inline constexpr std::array enum_names<preference::PreferenceSection::TrainOn> = {"completion",
                                                                                  "all"};

template <>
struct config_detail::Traits<preference::LossChoice> {
  using List = Traits<std::vector<preference::WeightedLoss>>;
  static std::string type(const Rule& rule) {
    return Traits<std::string>::type(rule) + " | list of {loss, weight}";
  }
  static void read(const YamlNode& node, const std::string& path, const Rule& rule,
                   preference::LossChoice& value) {
    value.terms.clear();
    if (node.kind != YamlNode::Kind::kList)
      return Traits<std::string>::read(node, path, rule, value.terms.emplace_back().loss);
    if (node.items.empty()) fail(node, path, "the name of a loss or a list of {loss, weight}");
    List::read(node, path, {}, value.terms);
  }
  static YamlNode write(preference::LossChoice& value) {
    const bool plain = value.terms.size() == 1 && value.terms[0].weight == 1;
    return plain ? YamlNode::scalar(value.terms[0].loss) : List::write(value.terms);
  }
  static std::vector<Field> children() { return {}; }
};

}  // namespace temper

namespace temper::preference {

using ReferenceKind = PreferenceSection::Reference;

void WeightedLoss::fields(Fields& f) {
  Rule rule = one_of(losses().names());
  rule.required = true;
  f.add("loss", loss, "a loss", rule);
  f.add("weight", weight, "its weight in the sum", at_least(0));
}

std::string LossChoice::text() const {
  std::string out;
  for (const WeightedLoss& term : terms)
    out += (out.empty() ? "" : " + ") + (term.weight == 1 ? "" : str(term.weight, " ")) + term.loss;
  return out;
}

void PreferenceSection::fields(Fields& f) {
  f.add("loss", loss,
        "dpo's loss (temper list losses), or the weighted sum of several, as in [{loss: sigmoid, "
        "weight: 0.8}, {loss: sft, weight: 0.2}]",
        one_of(losses().names()));
  f.add("beta", beta,
        "dpo: strength of the implicit KL constraint to the reference; scales the implicit rewards",
        above(0));
  f.add("lambda", lambda, "orpo: weight of the odds-ratio loss", at_least(0));
  f.add("label_smoothing", label_smoothing,
        "dpo: assumed share of flipped preference labels (sigmoid: cDPO; robust; "
        "simpo; aot), or, above 0, what exo_pair smooths labels by",
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
  f.add("reference_model", reference_model, "dpo: directory of a separate reference model",
        reads(InputFiles::kModel));
  f.add("center_rewards_coefficient", center_rewards_coefficient,
        "reward: coefficient of the mean squared sum of both rewards of a pair, which centers them "
        "at 0; "
        "0: none",
        at_least(0));
}

void PreferenceConfig::fields(Fields& f) {
  RunConfig::fields(f);
  f.add("preference", preference, "preference losses");
  f.add("rollout", rollout, "how completions for train.eval_rewards are sampled");
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
  return verb == "dpo" && any_loss(preference.loss, &PreferenceLoss::unpaired);
}

bool PreferenceConfig::has_reference() const {
  return verb == "dpo" && preference.reference != ReferenceKind::kNone &&
         any_loss(preference.loss, &PreferenceLoss::reference);
}

void PreferenceConfig::complete() {
  RunConfig::complete();
  if (!is_scalar()) warn_of_idle_rollout();
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
  for (const WeightedLoss& term : p.loss.terms) losses().find(term.loss, where("preference.loss"));
  if (p.label_smoothing > 0 && !any_loss(p.loss, &PreferenceLoss::smoothed))
    warnings.push_back(str(where("preference.label_smoothing"),
                           " has no effect with preference.loss: ", p.loss.text()));
}

void PreferenceConfig::validate_dpo() const {
  const PreferenceSection& p = preference;
  std::set<std::string> names;
  for (const WeightedLoss& term : p.loss.terms) {
    require(names.insert(term.loss).second, "preference.loss", term.loss,
            " stands twice in the list");
    require(term.loss != "robust" || p.label_smoothing < 0.5, "preference.label_smoothing",
            "found ", p.label_smoothing, ", expected less than 0.5 with preference.loss: robust");
    require(term.loss != "exo_pair" || p.label_smoothing > 0, "preference.label_smoothing",
            "found 0, expected above 0 with preference.loss: exo_pair, which compares with the "
            "logarithm of it; its paper has 0.001");
    require(p.loss.terms.size() == 1 || !losses().find(term.loss).unpaired, "preference.loss",
            term.loss, " takes completions without their opposites, and cannot be one of several");
  }
  const bool compares = any_loss(p.loss, &PreferenceLoss::reference), unpaired = is_unpaired();
  const bool named =
      p.reference == ReferenceKind::kModel || p.reference == ReferenceKind::kPrecomputed;
  require(p.reference != ReferenceKind::kModel || p.reference_model, "preference.reference",
          "found model, but preference.reference_model names no directory");
  require(!p.reference_model || named, "preference.reference_model",
          "preference.reference does not read it; expected reference: model or precomputed");
  require(p.reference != ReferenceKind::kAdapterOff || has_adapter(), "preference.reference",
          "found adapter_off, but no adapter trains (adapter.method is none); auto keeps a copy of "
          "the model");
  require(compares || p.reference == ReferenceKind::kAuto || p.reference == ReferenceKind::kNone,
          "preference.reference", p.loss.text(), " has no reference; leave the key out");
  require(
      !unpaired || train.batch_size > 1, "train.batch_size",
      "found 1, expected at least 2: ", p.loss.text(),
      " estimates its divergence from completions after prompts of other rows of the batch, and "
      "one row's own would make its loss a constant");
  require(!unpaired || p.reference != ReferenceKind::kPrecomputed, "preference.reference",
          "found precomputed, expected auto, adapter_off or model: ", p.loss.text(),
          " compares completions of other prompts, which change from step to step");
}

std::string PreferenceConfig::no_reference_role() const {
  const PreferenceSection& p = preference;
  if (verb != "dpo") return RunConfig::no_reference_role();
  if (!has_reference()) return "this loss has no reference";
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
