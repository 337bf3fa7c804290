#include "temper/preference/dpo.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "temper/train/ranks.h"
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
      loss_(losses().find(config.preference.loss, config.where("preference.loss"))),
      reference_(make_reference(config, roles, all_rows(), group, messages, role_ranks)),
      stop_(std::move(stop)) {}

void DpoTask::begin(int64_t) {
  messages_.note("loss: " + config_.preference.loss + ", reference: " + reference_->describe());
  reference_->begin(stop_);
}

// KTO's estimate of the divergence: the mean log-ratio of mismatched completions, not below 0.
void DpoTask::prepare(Batch& batch, dist::Group* group) {
  if (!loss_.unpaired) return;
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
  const Ratios ratios{loss_.averages ? sum_C / chosen.count_S : sum_C,
                      loss_.averages ? sum_R / rejected.count_S : sum_R, batch.kl};
  train::Loss loss;
  loss.terms.push_back({.name = section.loss,
                        .value = loss_.of(ratios, section).to(at::kFloat),
                        .denominator = loss_.unpaired ? batch.completions() : batch.chosen});
  // Rewards are of whole completions, ipo's too, but for simpo's, which are of their means.
  const bool of_means = !loss_.reference;
  add_means(loss, batch,
            {section.beta * (of_means ? ratios.chosen_C : sum_C),
             section.beta * (of_means ? ratios.rejected_R : sum_R), chosen.unit_S, rejected.unit_S},
            loss_.unpaired);
  const auto count_C = static_cast<double>(logp_C.numel()),
             count_R = static_cast<double>(logp_R.numel());
  if (count_C > 0) loss.means.push_back({"logps/chosen", total(logp_C), count_C});
  if (count_R > 0) loss.means.push_back({"logps/rejected", total(logp_R), count_R});
  // Weighted by completions, so that the mean does not depend on how a batch is split into passes.
  const double count = count_C + count_R;
  if (loss_.unpaired) loss.means.push_back({"kl", batch.kl * count, count});
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
