#include "temper/preference/orpo.h"

#include <ATen/ATen.h>

#include "temper/ops/pointwise.h"
#include "temper/preference/losses.h"
#include "temper/train/ranks.h"
#include "temper/train/run_task.h"

namespace temper::preference {
OrpoTask::OrpoTask(const PreferenceConfig& config, train::Roles& roles, dist::Group& group,
                   train::Messages& messages)
    : PairTask(config, format_of(config, roles.policy.tokenizer, roles.policy.chat), group,
               messages),
      model_(*roles.policy.model),
      with_prompt_(targets_of(config) == Targets::kWithChosenPrompt) {}

train::Loss OrpoTask::loss_of(const Batch& batch, const train::ForwardPass& pass) {
  const double lambda = config_.preference.lambda;
  const SideTargets chosen = side_targets(pass, Side::kChosen),
                    rejected = side_targets(pass, Side::kRejected),
                    likely = side_targets(pass, Side::kChosen, with_prompt_);
  const at::Tensor logp_M = train::token_logp(model_, pass, pass_options(batch)).logp;
  const at::Tensor sum_P = chosen.sum(logp_M), rejected_sum_P = rejected.sum(logp_M);
  const at::Tensor mean_P = sum_P / chosen.count_S,
                   rejected_mean_P = rejected_sum_P / rejected.count_S;
  const at::Tensor odds_P = log_odds_ratio(mean_P, rejected_mean_P);
  train::Loss loss;
  loss.terms.push_back({.name = "nll",
                        .value = -(likely.sum(logp_M) / likely.count_S).to(at::kFloat),
                        .denominator = batch.chosen});
  loss.terms.push_back({.name = "odds_ratio",
                        .coefficient = lambda,
                        .value = -ops::log_sigmoid(odds_P).to(at::kFloat),
                        .denominator = batch.chosen});
  add_means(loss, batch,
            {lambda * mean_P, lambda * rejected_mean_P, chosen.unit_S, rejected.unit_S});
  const double pairs = static_cast<double>(chosen.unit_S.size());
  loss.means.push_back({"log_odds_ratio", total(odds_P), pairs});
  loss.means.push_back({"logps/chosen", total(sum_P), pairs});
  loss.means.push_back({"logps/rejected", total(rejected_sum_P), pairs});
  return loss;
}

train::RunOutcome run_orpo(PreferenceConfig& config, const train::RunHost& host) {
  config.resolve("orpo");
  const dist::Mesh mesh = train::join_mesh(config, host);
  train::Roles roles(config, mesh);
  train::RunDirectory directory(config, host, mesh);
  OrpoTask task(config, roles, *mesh.data_parallel, directory);
  return train::run_task(config, roles, mesh, directory, task);
}

}  // namespace temper::preference
