#include "temper/train/router_step.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <numeric>

#include "temper/base/error.h"
#include "temper/base/exact_math.h"
#include "temper/metrics/trace.h"
#include "temper/train/passes/rank_pass.h"

namespace temper::train {

void check_router_loss(const std::optional<double>& coefficient, bool sparse) {
  check<ConfigError>(sparse || !coefficient,
                     "train.router_aux_loss: the policy is no mixture of experts, or the run (a "
                     "reward model's) has no such loss; expected null");
}

RouterStep::RouterStep(models::CausalLM& model, std::optional<double> coefficient,
                       const dist::Mesh& mesh)
    : model_(model),
      coefficient_(coefficient),
      mesh_(mesh),
      layers_(static_cast<size_t>(model.config().num_hidden_layers)),
      experts_(static_cast<size_t>(model.config().experts)),
      chosen_(static_cast<size_t>(model.config().experts_per_token)) {}

void RouterStep::begin(StepPlan& plan) {
  watch_ = nn::RouterWatch();
  if (coefficient_) watch_.loss = std::make_shared<ops::BalanceLoss>();
  counted_ = false;
  const bool alone = plan.passes.size() == 1 && mesh_.tokens->size() == 1;
  if (coefficient_ && !alone) count(plan);
  for (ForwardPass& pass : plan.passes) pass.routers = pass.shadow ? nullptr : &watch_;
}

void RouterStep::count(StepPlan& plan) {
  const trace::Span span("count experts' tokens");
  const at::NoGradGuard no_grad;
  watch_.choices_only = true;
  for (ForwardPass& pass : plan.passes) {
    if (!pass.trains() && !plan.every_token) continue;  // as the trainer
    pass.routers = pass.shadow ? nullptr : &watch_;
    model_.forward(RankPass(model_, pass).context({.dropout = true, .watched = true}));
  }
  reduce();
  weigh();
  watch_.layers.clear();
  watch_.choices_only = false;
  counted_ = true;
}

// Sums over the ranks.
void RouterStep::reduce() {
  choices_.assign(layers_ * experts_, 0);
  probability_.assign(layers_ * experts_, 0);
  tokens_.assign(layers_, 0);
  for (const auto& [layer, seen] : watch_.layers) {
    const auto l = static_cast<size_t>(layer);
    const auto place = static_cast<std::ptrdiff_t>(l * experts_);
    std::copy(seen.chosen.begin(), seen.chosen.end(), choices_.begin() + place);
    std::copy(seen.probability.begin(), seen.probability.end(), probability_.begin() + place);
    tokens_[l] = seen.tokens;
  }
  for (std::vector<double>* of : {&choices_, &probability_, &tokens_})
    mesh_.tokens->all_reduce_sum(*of);
}

// f_e · coefficient · E / pairs.
void RouterStep::weigh() {
  const double pairs = std::accumulate(tokens_.begin(), tokens_.end(), 0.0);
  at::Tensor weight = at::zeros({static_cast<int64_t>(experts_)}, at::kDouble);
  double* of = weight.mutable_data_ptr<double>();
  for (size_t i = 0; i < choices_.size() && pairs > 0; ++i)
    of[i % experts_] +=
        choices_[i] / pairs * (*coefficient_ * static_cast<double>(experts_) / pairs);
  watch_.loss->weight = weight;
}

void RouterStep::before_backward() {
  watch_.counting = false;
  if (!coefficient_ || counted_) return;
  reduce();
  weigh();
}

void RouterStep::end(LossSums& sums) {
  reduce();
  if (!coefficient_) return;
  const double pairs = std::accumulate(tokens_.begin(), tokens_.end(), 0.0);
  value_ = 0;
  for (size_t e = 0; e < experts_ && pairs > 0; ++e) {
    double chosen = 0, probability = 0;
    for (size_t l = 0; l < layers_; ++l) {
      chosen += choices_[l * experts_ + e];
      probability += probability_[l * experts_ + e];
    }
    value_ += static_cast<double>(experts_) * (chosen / pairs) * (probability / pairs);
  }
  sums.terms.push_back({.name = "router_aux", .sum = value_, .scale = *coefficient_, .count = 1});
}

void RouterStep::describe(MetricsRow& row) const {
  double largest = 0, smallest = 0, entropy = 0;
  int64_t layers = 0;
  for (size_t l = 0; l < layers_; ++l) {
    const double all = tokens_.empty() ? 0 : tokens_[l] * static_cast<double>(chosen_);
    if (all == 0) continue;
    ++layers;
    double most = 0, least = 1;
    for (size_t e = 0; e < experts_; ++e) {
      const double share = choices_[l * experts_ + e] / all;
      most = std::max(most, share);
      least = std::min(least, share);
      if (share > 0) entropy -= share * exact::log(share);
    }
    largest += most;
    smallest += least;
  }
  if (layers == 0) return;
  const auto mean = [&](double sum) { return sum / static_cast<double>(layers); };
  if (coefficient_) row.set("router_aux_loss", value_);
  row.set("expert_share_max", mean(largest));
  row.set("expert_share_min", mean(smallest));
  row.set("expert_entropy", mean(entropy));
}

std::vector<MetricInfo> RouterStep::metrics() {
  return {
      {"router_aux_loss", "", "experts' balance",
       "with train.router_aux_loss: the load-balancing loss without its coefficient",
       "the experts of a token where they are used evenly"},
      {"expert_share_max", "", "experts' shares",
       "largest share of a layer's choices that one expert got, mean over layers"},
      {"expert_share_min", "", "experts' shares",
       "smallest share of a layer's choices that one expert got, mean over layers"},
      {"expert_entropy", "nats", "experts' entropy",
       "entropy of a layer's choices over its experts, mean over layers"},
  };
}

}  // namespace temper::train
