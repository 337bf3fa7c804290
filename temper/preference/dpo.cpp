#include "temper/preference/dpo.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <numeric>

#include "temper/train/ranks.h"
#include "temper/train/run_task.h"
#include "temper/workers/model_worker.h"

namespace temper::preference {
namespace {

// Completions after prompts of other rows, from which KTO estimates its divergence: the
// completions of a batch, each after the prompt of the next one and the last one after the
// first prompt. They stand in the rows' order; where there are pairs, all chosen ones before all
// rejected ones, as TRL deals pairs out. One completion alone stays with its own prompt.
class Mismatched {
 public:
  explicit Mismatched(std::span<const PreferenceRow> rows);
  // Units whose completions are chosen sides; they refer to this object.
  std::span<const train::PackUnit> units() const { return units_; }

 private:
  std::vector<PreferenceRow> rows_;
  std::vector<train::PackUnit> units_;
};

Mismatched::Mismatched(std::span<const PreferenceRow> rows) {
  std::vector<data::TokenPath> prompts, completions;
  const auto add = [&](const PreferenceRow& row, Side side) {
    if (!row.has(side)) return;
    prompts.push_back(row.path(side, true));
    completions.push_back(row.path(side, false));
  };
  constexpr Side kSides[] = {Side::kChosen, Side::kRejected};
  if (std::any_of(rows.begin(), rows.end(), [](const auto& row) { return row.paired(); })) {
    for (const Side side : kSides)
      for (const PreferenceRow& row : rows) add(row, side);
  } else {
    for (const PreferenceRow& row : rows)
      for (const Side side : kSides) add(row, side);
  }
  for (size_t i = 0; i < prompts.size(); ++i) {
    data::TokenPath& completion = completions[(i + prompts.size() - 1) % prompts.size()];
    PreferenceRow& row = rows_.emplace_back();
    int32_t parent = -1;
    if (!prompts[i].tokens.empty()) {
      row.segments.push_back(
          {-1, true, false, true, std::move(prompts[i].tokens), std::move(prompts[i].labels)});
      parent = 0;
    }
    row.segments.push_back(
        {parent, true, false, false, std::move(completion.tokens), std::move(completion.labels)});
  }
  for (size_t i = 0; i < rows_.size(); ++i)
    units_.push_back(unit_of(rows_[i], static_cast<int64_t>(i), Targets::kCompletions));
}

}  // namespace

DpoTask::DpoTask(const PreferenceConfig& config, train::Roles& roles, dist::Group& group,
                 train::Messages& messages, std::function<bool()> stop,
                 workers::RoleRanks* role_ranks)
    : PairTask(config, format_of(config, roles.policy.tokenizer, roles.policy.chat), group,
               messages),
      model_(*roles.policy.model),
      losses_(config.preference.loss),
      unpaired_(config.is_unpaired()),
      reference_(make_reference(config, roles, all_rows(), group, messages, role_ranks)),
      stop_(std::move(stop)) {}

void DpoTask::begin(int64_t) {
  messages_.note("loss: " + losses_.text() + ", reference: " + reference_->describe());
  reference_->begin(stop_);
}

void DpoTask::prepare(Batch& batch, dist::Group* group) {
  if (unpaired_) estimate_divergence(batch, group);
  if (any_loss(losses_, &PreferenceLoss::transports)) transport(batch, group);
}

// The k-th smallest of the policy's differences meets the k-th smallest of the reference's. Equal
// ones stay in the order of their rows.
void DpoTask::transport(Batch& batch, dist::Group* group) {
  const at::NoGradGuard no_grad;
  const size_t count = batch.rows.size();
  std::vector<double> found(2 * count);  // the policy's, then the reference's
  const int64_t max_tokens = train::pass_tokens(config_);
  for (const train::ForwardPass& pass : group ? train::plan_passes(batch.units, max_tokens, *group)
                                              : train::plan_passes(batch.units, max_tokens)) {
    if (!pass.trains()) continue;
    const SideTargets chosen = side_targets(pass, Side::kChosen),
                      rejected = side_targets(pass, Side::kRejected);
    const at::Tensor logp_M = train::token_logp(model_, pass, {}).logp;
    const Reference::Sums reference = reference_->sums(batch.rows, pass, chosen, rejected);
    if (pass.shadow) continue;
    const at::Tensor policy_P = chosen.sum(logp_M) - rejected.sum(logp_M),
                     reference_P = reference.chosen_C - reference.rejected_R;
    for (size_t i = 0; i < chosen.unit_S.size(); ++i) {
      const auto row = static_cast<size_t>(chosen.unit_S[i]);
      found[row] = policy_P.const_data_ptr<double>()[i];
      found[count + row] = reference_P.const_data_ptr<double>()[i];
    }
  }
  if (group) group->all_reduce_sum(found);
  const auto half = found.begin() + static_cast<int64_t>(count);
  std::sort(half, found.end());
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return found[a] < found[b]; });
  batch.transported.assign(count, 0);
  for (size_t k = 0; k < count; ++k) batch.transported[order[k]] = found[count + k];
}

// KTO's estimate of the divergence: the mean log-ratio of mismatched completions, not below 0.
void DpoTask::estimate_divergence(Batch& batch, dist::Group* group) {
  const Mismatched mismatched(batch.rows);
  const at::NoGradGuard no_grad;
  std::vector<double> sum{0, 0};
  const int64_t max_tokens = train::pass_tokens(config_);
  for (const train::ForwardPass& pass :
       group ? train::plan_passes(mismatched.units(), max_tokens, *group)
             : train::plan_passes(mismatched.units(), max_tokens)) {
    if (!pass.trains()) continue;
    const SideTargets targets = side_targets(pass, Side::kChosen),
                      none = side_targets(pass, Side::kRejected);
    const at::Tensor policy = targets.sum(train::token_logp(model_, pass, {}).logp);
    const at::Tensor ratio = policy - reference_->sums({}, pass, targets, none).chosen_C;
    if (pass.shadow) continue;
    sum[0] += total(ratio);
    sum[1] += static_cast<double>(targets.unit_S.size());
  }
  if (group) group->all_reduce_sum(sum);
  batch.kl = sum[1] > 0 ? std::max(0.0, sum[0] / sum[1]) : 0;
}

train::Loss DpoTask::loss_of(const Batch& batch, const train::ForwardPass& pass) {
  const PreferenceSection& section = config_.preference;
  const SideTargets chosen = side_targets(pass, Side::kChosen),
                    rejected = side_targets(pass, Side::kRejected);
  const at::Tensor logp_M = train::token_logp(model_, pass, pass_options(batch)).logp;
  const at::Tensor logp_C = chosen.sum(logp_M), logp_R = rejected.sum(logp_M);
  const Reference::Sums reference = reference_->sums(batch.rows, pass, chosen, rejected);
  const at::Tensor sum_C = logp_C - reference.chosen_C, sum_R = logp_R - reference.rejected_R;
  train::Loss loss;
  bool of_means = true;  // rewards: of whole completions, ipo's too, but for simpo's alone
  for (const WeightedLoss& term : losses_.terms) {
    const PreferenceLoss& one = losses().find(term.loss);
    Ratios ratios{one.reference ? sum_C : logp_C, one.reference ? sum_R : logp_R, batch.kl};
    if (one.averages) {
      ratios.chosen_C = ratios.chosen_C / chosen.count_S;
      ratios.rejected_R = ratios.rejected_R / rejected.count_S;
    }
    ratios.chosen_logp_C = logp_C;
    ratios.chosen_tokens = batch.chosen_tokens / std::max(batch.chosen, 1.0);
    if (one.transports) {
      ratios.policy_P = logp_C - logp_R;
      std::vector<double> transported;
      for (const int64_t row : chosen.unit_S)
        transported.push_back(batch.transported.at(static_cast<size_t>(row)));
      ratios.transported_P = at::tensor(transported, at::kDouble);
    }
    of_means = of_means && one.averages && !one.reference;
    loss.terms.push_back({.name = term.loss,
                          .coefficient = term.weight,
                          .value = one.of(ratios, section).to(at::kFloat),
                          .denominator = unpaired_ ? batch.completions() : batch.chosen});
  }
  const auto reward = [&](const at::Tensor& sum, const SideTargets& side) {
    return section.beta * (of_means ? sum / side.count_S : sum);
  };
  add_means(loss, batch,
            {reward(sum_C, chosen), reward(sum_R, rejected), chosen.unit_S, rejected.unit_S},
            unpaired_);
  const auto count_C = static_cast<double>(logp_C.numel()),
             count_R = static_cast<double>(logp_R.numel());
  if (count_C > 0) loss.means.push_back({"logps/chosen", total(logp_C), count_C});
  if (count_R > 0) loss.means.push_back({"logps/rejected", total(logp_R), count_R});
  // Weighted by completions, so that the mean does not depend on how a batch is split into passes.
  const double count = count_C + count_R;
  if (unpaired_) loss.means.push_back({"kl", batch.kl * count, count});
  return loss;
}

train::RunOutcome run_dpo(PreferenceConfig& config, const train::RunHost& host) {
  config.resolve("dpo");
  train::RunRanks ranks = train::join_ranks(config, host);
  if (!ranks.trains)
    return workers::serve_run(config, *ranks.world, [&](const train::Policy& policy) {
      return reference_source(config, policy);
    });
  const std::unique_ptr<workers::RoleRanks> role_ranks = workers::find_role_ranks(config, ranks);
  train::Roles roles(config, ranks.mesh);
  train::RunDirectory directory(config, host, ranks.mesh);
  DpoTask task(config, roles, *ranks.mesh.data_parallel, directory, host.stop, role_ranks.get());
  const train::RunOutcome outcome = train::run_task(config, roles, ranks.mesh, directory, task);
  if (role_ranks) role_ranks->end(outcome);
  return outcome;
}

}  // namespace temper::preference
