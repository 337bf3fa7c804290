// What can be checked of a run's config without a file.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "temper/generate/config.h"
#include "temper/metrics/sink.h"
#include "temper/rewards/config.h"
#include "temper/text/chat/template_date.h"
#include "temper/train/config.h"
#include "temper/train/evaluation.h"
#include "temper/train/optimizers/update_rule.h"
#include "temper/train/run/memory_limit.h"
#include "temper/train/run/reward_evaluation.h"

namespace temper::train {
namespace {

void validate_adapter(const RunConfig& c) {
  using Method = models::AdapterSection::Method;
  const models::AdapterSection& a = c.adapter;
  c.require(!a.path || a.method != Method::kNone, "adapter.method",
            "found none, but adapter.path names an adapter");
  c.require(!a.target_modules.empty() || a.method == Method::kNone, "adapter.target_modules",
            "found an empty list, expected all-linear or names of linear layers");
  const bool all = std::count(a.target_modules.begin(), a.target_modules.end(), "all-linear") > 0;
  c.require(!all || a.target_modules.size() == 1, "adapter.target_modules",
            "found all-linear among other names; expected it alone, or names of linear layers");
  for (const models::LayerPattern& p : a.rank_pattern.list)
    c.require(p.value == std::floor(p.value) && p.value <= INT32_MAX,
              str("adapter.rank_pattern.", p.pattern), "found ", p.value,
              ", expected a positive integer");
}

constexpr int64_t kMostRows = 1'000'000;  // most rows of a step: they are in memory together

bool has_evaluation(const RunConfig& c) {
  return !c.data.eval.empty() || c.data.validation_fraction > 0;
}
constexpr const char* kNothingToEvaluate =
    "there is neither data.eval nor data.validation_fraction to evaluate on";

constexpr std::string_view kEval = "eval/";

// The names that rows of metrics have of an evaluation (evaluation.h).
std::vector<std::string> evaluated_names(const RunConfig& c) {
  std::vector<std::string> names, sets = set_names(data::evaluation_sources(c.data, 0));
  if (sets.size() < 2) sets.clear();
  std::vector<std::string> metrics = c.evaluated_metrics();
  for (std::string& metric : rewarded_metrics(c.train)) metrics.push_back(std::move(metric));
  for (const std::string& metric : metrics) {
    names.push_back(str(kEval, metric));
    for (const std::string& set : sets) names.push_back(str(kEval, set, "/", metric));
  }
  return names;
}

void validate_eval_rewards(const RunConfig& c) {
  if (c.train.eval_rewards.empty()) return;
  const char* key = "train.eval_rewards";
  c.require(has_evaluation(c), key, kNothingToEvaluate);
  c.require(c.sampling(), key, "found rewards, expected none: a reward model completes no prompts");
  const std::string problem = rewards::find_problem(c.train.eval_rewards);
  c.require(problem.empty(), key, problem);
  c.sampling()->validate();
  c.require(c.sampling()->cache_dtype == c.cache_dtype(), "rollout.cache_dtype",
            "found another dtype than float32, in which this verb's policy trains");
}

void validate_train(const RunConfig& c) {
  const TrainSection& t = c.train;
  c.require(!t.max_steps || !t.epochs, "train.epochs",
            "train.max_steps is set too; give one of them");
  c.require(c.optimizer.warmup_ratio == 0 || c.optimizer.warmup_steps == 0,
            "optimizer.warmup_ratio", "optimizer.warmup_steps is set too; give one of them");
  memory_limit(c);
  const auto named = [](const auto& names, auto value) {
    return names[static_cast<size_t>(value)];
  };
  c.require(!t.offloads_inputs() || t.recompute == TrainSection::Recompute::kBlocks,
            "train.offload", "found ", named(enum_names<TrainSection::Offload>, t.offload),
            " with train.recompute: ", named(enum_names<TrainSection::Recompute>, t.recompute),
            ", expected train.recompute: blocks: without it blocks keep more than their inputs");
  c.require(t.offload != TrainSection::Offload::kNone || !t.offload_dir, "train.offload_dir",
            "train.offload is none, which writes no files; expected activations, optimizer or all");
  c.require(t.batch_size <= kMostRows, "train.batch_size", "found ", t.batch_size,
            ", expected at most ", kMostRows, " rows a step");
  c.require(t.eval_every == 0 || has_evaluation(c), "train.eval_every", kNothingToEvaluate);
  validate_eval_rewards(c);
  const auto &stops = t.early_stopping.metric, &keeps = t.keep_best.metric;
  if (stops) c.check_evaluated("train.early_stopping.metric", *stops);
  if (keeps) c.check_evaluated("train.keep_best.metric", *keeps);
  std::string with_momentum;
  for (const auto& kind : optimizers().list())
    if (kind.value.momentum) with_momentum += (with_momentum.empty() ? "" : ", ") + kind.name;
  const OptimizerKind& kind = optimizers().find(c.optimizer.name, c.where("optimizer.name"));
  c.require(kind.momentum || c.optimizer.momentum == 0, "optimizer.momentum", "found ",
            c.optimizer.momentum, ", expected 0: ", c.optimizer.name,
            " does not read this key; these optimizers do: ", with_momentum,
            kind.betas ? str("; ", c.optimizer.name, " has betas") : "");
}

}  // namespace

void RunConfig::check_evaluated(const char* key, const std::string& metric) const {
  require(has_evaluation(*this), key, kNothingToEvaluate);
  const std::string meant = metric.starts_with("eval_") ? metric.substr(5) : metric;
  require(metric.starts_with(kEval), key, "found ", metric,
          ", expected an evaluation metric, such as eval/", meant);
  const std::vector<std::string> names = evaluated_names(*this);
  const auto is_it = [&](const std::string& name) {
    return name.ends_with('*') ? metric.starts_with(name.substr(0, name.size() - 1))
                               : metric == name;
  };
  if (std::any_of(names.begin(), names.end(), is_it)) return;
  // What all have in common makes none alike.
  std::vector<std::string> parts;
  std::string known;
  for (const std::string& name : names) {
    parts.push_back(name.substr(kEval.size()));
    known += (known.empty() ? "" : ", ") + name;
  }
  const std::string near = nearest(metric.substr(kEval.size()), parts);
  require(false, key, "found ", metric, ", which no evaluation of this run has",
          near.empty() ? "; expected one of " + known : str("; did you mean ", kEval, near, "?"));
}

void RunConfig::validate() const {
  if (data.template_date) parse_date(*data.template_date, where("data.template_date"));
  for (const std::string& name : metrics.sinks) sinks().find(name, where("metrics.sinks"));
  validate_adapter(*this);
  validate_train(*this);
  validate_roles();
}

std::string RunConfig::no_rollout_role() const { return "this verb samples nothing"; }
std::string RunConfig::no_reference_role() const { return "this verb has no reference model"; }

void RunConfig::validate_roles() const {
  roles.check_names([this](const char* key) { return where(key); });
  const auto check_role = [this](const char* key, const std::vector<int64_t>& ranks,
                                 const std::string& why) {
    require(ranks.empty() || why.empty(), key, "found ranks of their own for it, and ", why,
            "; leave the key out");
  };
  check_role("roles.rollout", roles.rollout, no_rollout_role());
  check_role("roles.reference", roles.reference, no_reference_role());
  check_role("roles.reward", roles.reward, no_reward_role());
}

std::vector<int> RunConfig::training_ranks(int64_t ranks) const {
  std::vector<int> training = roles.training(ranks, [this](const char* key) { return where(key); });
  mesh.sizes(static_cast<int64_t>(training.size()), where("mesh"), ranks);
  return training;
}

}  // namespace temper::train
