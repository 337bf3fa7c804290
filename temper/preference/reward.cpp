#include "temper/preference/reward.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "temper/base/error.h"
#include "temper/ops/pointwise.h"
#include "temper/train/ranks.h"
#include "temper/train/run_task.h"

namespace temper::preference {

RewardTask::RewardTask(const PreferenceConfig& config, train::ScalarPolicy& policy,
                       dist::Group& group, train::Messages& messages)
    : PairTask(config, format_of(config, policy.tokenizer, policy.chat), group, messages),
      model_(*policy.model) {}

train::Loss RewardTask::loss_of(const Batch& batch, const train::ForwardPass& pass) {
  const double centring = config_.preference.center_rewards_coefficient;
  const SideScores chosen = side_scores(pass, Side::kChosen),
                   rejected = side_scores(pass, Side::kRejected);
  check(chosen.unit_S == rejected.unit_S, "a reward model compares two sides of each row");
  const at::Tensor reward_K = train::scalars(model_, pass, pass_options(batch)).to(at::kDouble);
  const at::Tensor chosen_P = reward_K.index_select(0, chosen.score_S),
                   rejected_P = reward_K.index_select(0, rejected.score_S);
  std::vector<double> margin;
  for (const int64_t unit : chosen.unit_S)
    margin.push_back(batch.rows[static_cast<size_t>(unit)].margin);
  const bool margins = std::any_of(margin.begin(), margin.end(), [](double m) { return m != 0; });
  if (margins && !std::exchange(said_margins_, true))
    messages_.note("rows have a `margin`: the loss subtracts it from the difference of rewards");
  const at::Tensor difference_P = chosen_P - rejected_P - at::tensor(margin, at::kDouble);
  train::Loss loss;
  loss.terms.push_back({.name = "preference",
                        .value = -ops::log_sigmoid(difference_P).to(at::kFloat),
                        .denominator = batch.chosen});
  if (centring > 0)
    loss.terms.push_back({.name = "centring",
                          .coefficient = centring,
                          .value = (chosen_P + rejected_P).square().to(at::kFloat),
                          .denominator = batch.chosen});
  add_means(loss, batch, {chosen_P, rejected_P, chosen.unit_S, rejected.unit_S});
  return loss;
}

train::RunOutcome run_reward(PreferenceConfig& config, const train::RunHost& host) {
  config.resolve("reward");
  const dist::Mesh mesh = train::join_mesh(config, host);
  train::ScalarPolicy policy = train::load_scalar_policy(config, mesh);
  train::Roles roles(policy, config);
  train::RunDirectory directory(config, host, mesh);
  RewardTask task(config, policy, *mesh.data_parallel, directory);
  return train::run_task(config, roles, mesh, directory, task);
}

}  // namespace temper::preference
