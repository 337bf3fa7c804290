#include "temper/tinker/losses.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>

#include "temper/base/error.h"

namespace temper::tinker {
namespace {

// exp of more is infinite in float64, and 0 · inf, of a target without an advantage or beyond a
// bound, is no number.
constexpr double kMostLogRatio = 700;
constexpr size_t kTermsAtOnce = 1 << 16;  // bounds the memory of intermediate results

at::Tensor ratio_of(const TargetNumbers& t) {
  return train::importance_ratio(t.logp_M,
                                 at::maximum(t.old_logp_M, t.logp_M.detach() - kMostLogRatio));
}

at::Tensor cross_entropy(const LossSpec&, const TargetNumbers& t) { return -t.weight_M * t.logp_M; }
at::Tensor importance_sampling(const LossSpec&, const TargetNumbers& t) {
  return -ratio_of(t) * t.advantage_M;
}
at::Tensor ppo(const LossSpec& spec, const TargetNumbers& t) {
  return train::clipped_surrogate(ratio_of(t), t.advantage_M, spec.bounds);
}
at::Tensor cispo(const LossSpec& spec, const TargetNumbers& t) {
  return train::clipped_importance(ratio_of(t), t.advantage_M, t.logp_M, spec.bounds);
}
at::Tensor dro(const LossSpec& spec, const TargetNumbers& t) {
  return train::direct_reward(t.logp_M, t.old_logp_M, t.advantage_M, spec.beta);
}
at::Tensor gspo(const LossSpec& spec, const TargetNumbers& t) {
  const at::Tensor mean_M = at::full_like(t.old_logp_M, std::min(t.mean_log_ratio, kMostLogRatio));
  return train::clipped_surrogate(train::sequence_ratio(t.logp_M, mean_M), t.advantage_M,
                                  spec.bounds);
}

// By name, with defaults; those that are not 0 are keys of the loss's configuration.
struct KnownLoss {
  const char* name;
  LossSpec spec;
};
constexpr train::RatioBounds kGspo{1 - 3e-4, 1 + 4e-4};  // the paper's, section 5.1
const KnownLoss kLosses[] = {
    {"cross_entropy", {.terms = &cross_entropy, .reads_weights = true}},
    {"importance_sampling", {.terms = &importance_sampling}},
    {"ppo", {.terms = &ppo, .bounds = {0.8, 1.2}}},
    {"cispo", {.terms = &cispo, .bounds = {0, 4}}},
    {"dro", {.terms = &dro, .beta = 0.05}},
    {"gspo", {.terms = &gspo, .reads_mask = true, .bounds = kGspo}},
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
  const bool clips = spec.bounds.high > 0, has_beta = spec.beta > 0;
  for (const auto& [key, value] : config) {
    double* const field = clips && key == "clip_low_threshold"    ? &spec.bounds.low
                          : clips && key == "clip_high_threshold" ? &spec.bounds.high
                          : has_beta && key == "beta"             ? &spec.beta
                                                                  : nullptr;
    check<DataError>(field != nullptr, "loss_fn_config: `", key.substr(0, 64), "` is no key of ",
                     name, "; expected ",
                     clips      ? "clip_low_threshold, clip_high_threshold"
                     : has_beta ? "beta"
                                : "none");
    const double* const number = std::get_if<double>(&value);
    check<DataError>(number && std::isfinite(*number) && *number >= 0, "loss_fn_config: `", key,
                     "`: expected a number that is at least 0");
    *field = *number;
  }
  check<DataError>(spec.bounds.low <= spec.bounds.high, "loss_fn_config: clip_low_threshold ",
                   spec.bounds.low, " is above clip_high_threshold ", spec.bounds.high,
                   "; both are ratios, as 0.8 and 1.2");
  return spec;
}

bool Targets::trains(const LossSpec& loss) const {
  if (loss.beta > 0 && size() > 0) return true;
  const auto not_zero = [](float x) { return x != 0; };
  return std::any_of(weight.begin(), weight.end(), not_zero) ||
         std::any_of(advantage.begin(), advantage.end(), not_zero);
}

namespace {

// Over the targets that count for the datum's ratio under gspo.
double mean_log_ratio(const Targets& t, std::span<const float> logprobs) {
  const std::vector<float>& counted = t.ratio_mask.empty() ? t.advantage : t.ratio_mask;
  double sum = 0, count = 0;
  for (size_t i = 0; i < t.size(); ++i) {
    if (counted[i] == 0) continue;
    sum += double{logprobs[i]} - double{t.old_logprob[i]};
    ++count;
  }
  return count > 0 ? sum / count : 0;
}

}  // namespace

LossValue loss_of(const LossSpec& spec, const Targets& targets, std::span<const float> logprobs) {
  const at::AutoGradMode mode(true);
  LossValue value;
  TargetNumbers t;
  if (spec.reads_mask) t.mean_log_ratio = mean_log_ratio(targets, logprobs);
  for (size_t begin = 0; begin < targets.size(); begin += kTermsAtOnce) {
    const size_t count = std::min(kTermsAtOnce, targets.size() - begin);
    const auto numbers = [&](std::span<const float> of) {
      return of.empty() ? at::Tensor()
                        : at::tensor(at::ArrayRef<float>(&of[begin], count), at::kDouble);
    };
    t.logp_M = numbers(logprobs).requires_grad_();
    t.old_logp_M = numbers(targets.old_logprob);
    t.advantage_M = numbers(targets.advantage);
    t.weight_M = numbers(targets.weight);
    const at::Tensor terms_M = spec.terms(spec, t);
    terms_M.sum().backward();
    const double* const terms = terms_M.const_data_ptr<double>();
    const double* const gradient = t.logp_M.grad().const_data_ptr<double>();
    for (size_t i = 0; i < count; ++i) {
      value.loss += terms[i];
      value.gradient.push_back(static_cast<float>(gradient[i]));
    }
  }
  return value;
}

}  // namespace temper::tinker
