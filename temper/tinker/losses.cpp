#include "temper/tinker/losses.h"

#include <algorithm>
#include <cmath>

#include "temper/base/error.h"
#include "temper/base/exact_math.h"

namespace temper::tinker {
namespace {

struct KnownLoss {
  const char* name;
  LossSpec spec;  // with its defaults
  bool clips, has_beta;
};
constexpr double kGspoLow = 1 - 3e-4, kGspoHigh = 1 + 4e-4;  // the paper's, section 5.1
const KnownLoss kLosses[] = {
    {"cross_entropy", {LossKind::kCrossEntropy}, false, false},
    {"importance_sampling", {LossKind::kImportanceSampling}, false, false},
    {"ppo", {LossKind::kPpo, 0.8, 1.2}, true, false},
    {"cispo", {LossKind::kCispo, 0, 4}, true, false},
    {"dro", {LossKind::kDro, 0, 0, 0.05}, false, true},
    {"gspo", {LossKind::kGspo, kGspoLow, kGspoHigh}, true, false},
};

std::string known_losses() {
  std::string names;
  for (const KnownLoss& loss : kLosses)
    names += (names.empty() ? "" : ", ") + std::string(loss.name);
  return names;
}

}  // namespace

LossSpec read_loss(const std::string& name, const LossConfig& config) {
  check<DataError>(name != "stable_reinforce",
                   "loss_fn stable_reinforce is not offered, as its formula is not published; set "
                   "loss_fn=importance_sampling or ppo");
  check<DataError>(name != "custom",
                   "custom losses on the server are not offered; forward_backward_custom with a "
                   "function runs the loss in the client");
  const KnownLoss* known = nullptr;
  for (const KnownLoss& loss : kLosses)
    if (name == loss.name) known = &loss;
  check<DataError>(known != nullptr, "loss_fn: found `", name.substr(0, 64), "`, expected one of ",
                   known_losses());
  LossSpec spec = known->spec;
  for (const auto& [key, value] : config) {
    double* const field = known->clips && key == "clip_low_threshold"    ? &spec.clip_low
                          : known->clips && key == "clip_high_threshold" ? &spec.clip_high
                          : known->has_beta && key == "beta"             ? &spec.beta
                                                                         : nullptr;
    check<DataError>(field != nullptr, "loss_fn_config: `", key.substr(0, 64), "` is no key of ",
                     name, "; expected ",
                     known->clips      ? "clip_low_threshold, clip_high_threshold"
                     : known->has_beta ? "beta"
                                       : "none");
    const double* const number = std::get_if<double>(&value);
    check<DataError>(number && std::isfinite(*number) && *number >= 0, "loss_fn_config: `", key,
                     "`: expected a number that is at least 0");
    *field = *number;
  }
  check<DataError>(spec.clip_low <= spec.clip_high, "loss_fn_config: clip_low_threshold ",
                   spec.clip_low, " is above clip_high_threshold ", spec.clip_high,
                   "; both are ratios, as 0.8 and 1.2");
  return spec;
}

bool Targets::trains(const LossSpec& loss) const {
  if (loss.kind == LossKind::kDro && loss.beta > 0 && size() > 0) return true;
  const auto not_zero = [](float x) { return x != 0; };
  return std::any_of(weight.begin(), weight.end(), not_zero) ||
         std::any_of(advantage.begin(), advantage.end(), not_zero);
}

namespace {

struct Ratios {
  std::span<const float> logprobs;
  const Targets& targets;
  double log_ratio(size_t i) const { return double{logprobs[i]} - double{targets.old_logprob[i]}; }
};

// -min(r A, clip(r) A) and its derivative by log r.
std::pair<double, double> clipped(const LossSpec& spec, double ratio, double advantage) {
  const double plain = ratio * advantage,
               bounded = std::clamp(ratio, spec.clip_low, spec.clip_high) * advantage;
  return plain <= bounded ? std::pair(-plain, -plain) : std::pair(-bounded, 0.0);
}

// The datum's ratio under gspo.
double sequence_ratio(const Ratios& ratios) {
  double sum = 0, count = 0;
  const Targets& t = ratios.targets;
  const std::vector<float>& counted = t.ratio_mask.empty() ? t.advantage : t.ratio_mask;
  for (size_t i = 0; i < t.size(); ++i) {
    if (counted[i] == 0) continue;
    sum += ratios.log_ratio(i);
    ++count;
  }
  return count > 0 ? exact::exp(sum / count) : 1;
}

// One target's loss and derivative by its log-probability. `sequence`: the ratio under gspo.
std::pair<double, double> of_target(const LossSpec& spec, const Ratios& ratios, double sequence,
                                    size_t i) {
  const Targets& t = ratios.targets;
  const double logprob = double{ratios.logprobs[i]};
  if (spec.kind == LossKind::kCrossEntropy)
    return {-double{t.weight[i]} * logprob, -double{t.weight[i]}};
  const double a = double{t.advantage[i]};
  // A ratio that overflows has no place where nothing is multiplied by it.
  if (a == 0 && spec.kind != LossKind::kDro) return {0, 0};
  const double log_ratio = ratios.log_ratio(i), ratio = exact::exp(log_ratio);
  switch (spec.kind) {
    case LossKind::kImportanceSampling:
      return {-ratio * a, -ratio * a};
    case LossKind::kPpo:
      return clipped(spec, ratio, a);
    case LossKind::kCispo: {
      const double factor = std::clamp(ratio, spec.clip_low, spec.clip_high) * a;
      return {-factor * logprob, -factor};
    }
    case LossKind::kDro:
      return {-(logprob * a - spec.beta / 2 * log_ratio * log_ratio), -(a - spec.beta * log_ratio)};
    default:
      return clipped(spec, sequence, a);
  }
}

}  // namespace

LossValue loss_of(const LossSpec& spec, const Targets& targets, std::span<const float> logprobs) {
  const Ratios ratios{logprobs, targets};
  const double sequence = spec.kind == LossKind::kGspo ? sequence_ratio(ratios) : 1;
  LossValue value;
  value.gradient.resize(targets.size());
  for (size_t i = 0; i < targets.size(); ++i) {
    const auto [loss, derivative] = of_target(spec, ratios, sequence, i);
    value.loss += loss;
    value.gradient[i] = static_cast<float>(derivative);
  }
  return value;
}

}  // namespace temper::tinker
