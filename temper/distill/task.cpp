#include "temper/distill/task.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <tuple>

#include "temper/base/error.h"
#include "temper/ops/host.h"
#include "temper/train/passes/rank_pass.h"

namespace temper::distill {
namespace {

const std::string kDistillLoss = "distill_loss", kTaskLoss = "task_loss";

std::vector<int64_t> layers_of(const std::vector<LayerPair>& pairs, int64_t LayerPair::* side) {
  std::vector<int64_t> layers;
  for (const LayerPair& pair : pairs) layers.push_back(pair.*side);
  return layers;
}

// Ranks do not share out the weights that strategies read outside of a model's forward pass: those
// of the vocabulary, and for attention the blocks.
void keep_whole(models::CausalLM& model, Tap tap) {
  const auto keep = [](const std::string&, nn::Module& module) { module.set_runs_as_unit(false); };
  model.visit({.lm_head = keep, .embedding = keep});
  if (tap == Tap::kAttention) model.each_module(keep);
}

// What the teachers read; they go first: of their passes only what is compared stays while the
// student's graph grows. Of those that no row of the pass learns from, nothing.
std::vector<std::optional<Side>> teacher_sides(const Teachers& teachers, const nn::Context& context,
                                               const Strategy& strategy,
                                               const std::vector<bool>& teaches) {
  const at::NoGradGuard no_grad;
  const nn::TransientPanels packs_once;
  const std::vector<int64_t> layers = layers_of(strategy.pairs(), &LayerPair::teacher);
  std::vector<std::optional<Side>> sides(teachers.size());
  for (size_t t = 0; t < teachers.size(); ++t)
    if (teaches[t] && !teachers.is_remote(t))
      sides[t].emplace(teachers.model(t), context, strategy.tap(), layers);
  return sides;
}

}  // namespace

DistillTask::DistillTask(const DistillConfig& config, train::Roles& roles, dist::Group& group,
                         train::Messages& messages, Strategy& strategy, const Teachers* teachers,
                         RemoteTeacher* remote)
    : SftTask(config, roles, group, messages, train::sft_format(config, roles.policy),
              [&](const data::SftFormat& format) { return student_rows(config, format, remote); }),
      distill_(config),
      roles_(roles),
      strategy_(strategy),
      teachers_(teachers),
      remote_(remote) {
  needs_labels_ = strategy.tap() == Tap::kNone || config.distill.alpha == 0;
  if (config.samples())
    sampler_ = std::make_unique<SampledRows>(
        config, roles.policy, roles.teacher ? roles.teacher->model() : nullptr, group);
  crosses_ = config.crosses();
  keep_whole(*roles.policy.model, strategy.tap());
  for (size_t t = 0; teachers && t < teachers->size(); ++t)
    if (!teachers->is_remote(t)) keep_whole(teachers->model(t), strategy.tap());
}

std::optional<train::StepPlan> DistillTask::next(int64_t) {
  std::vector<data::SftRow> rows = loader_.next();
  if (rows.empty()) return {};
  if (sampler_) {
    const data::LoaderState& after = loader_.state();
    sampler_->complete(rows, after.rows - static_cast<int64_t>(rows.size()), after.batches - 1);
  }
  train::StepPlan step = plan(std::move(rows));
  train::ForwardPass whole;
  for (const data::SftRow& row : rows_) whole.add(train::unit_of(row), 0);
  distill_count_ = std::max(strategy_.count(whole), 1.0);
  if (crosses_) aligned_ = static_cast<double>(strategy_.align(whole)->aligned);
  return step;
}

bool DistillTask::counts_every_token() const {
  return SftTask::counts_every_token() || strategy_.tap() != Tap::kNone;
}

std::vector<std::vector<float>> DistillTask::shares(const train::ForwardPass& pass,
                                                    const train::GroupOfUnit& group_of) const {
  std::vector<std::vector<float>> of_teacher(teachers_->size());
  const bool groups = static_cast<bool>(format_.groups);
  for (const int64_t unit : pass.units_of(strategy_.places(pass).token)) {
    const std::vector<float> of_row = distill_.distill.shares(groups ? group_of(unit) : "");
    for (size_t t = 0; t < of_row.size(); ++t) of_teacher[t].push_back(of_row[t]);
  }
  return of_teacher;
}

DistillTask::Losses DistillTask::losses(const train::ForwardPass& pass, bool training,
                                        const train::GroupOfUnit& group_of) {
  using Recompute = train::TrainSection::Recompute;
  const train::RankPass of_rank(model_, pass);
  nn::Context own =
      of_rank.context({.recompute = training && config_.train.recompute == Recompute::kBlocks,
                       .dropout = training,
                       .watched = training});
  nn::Context theirs{.forest = of_rank.pass().forest, .share = own.share};
  if (strategy_.tap() == Tap::kNone)
    theirs.rows = of_rank.context({}).rows;
  else
    own.rows = nullptr;
  const std::shared_ptr<const Alignment> alignment = strategy_.align(of_rank.pass());
  if (alignment) {
    theirs.forest = alignment->teacher.forest;
    theirs.rows = alignment->num_spans() > 0 ? alignment->teacher.rows() : nullptr;
  }
  const bool several = teachers_ && teachers_->size() > 1;
  const std::vector<std::vector<float>> shares =
      several ? this->shares(pass, group_of) : std::vector<std::vector<float>>();
  std::vector<std::optional<Side>> sides(1);
  std::vector<std::optional<ops::TopTokens>> tops(sides.size());
  const auto ask = [&](RemoteTeacher& remote) -> ops::TopTokens {
    const ops::TopTokens all = remote.top_tokens(pass);
    return {of_rank.at_own_targets(all.id), of_rank.at_own_targets(all.logit)};
  };
  if (remote_) {
    tops[0] = ask(*remote_);
  } else {
    std::vector<bool> teaches(teachers_->size(), true);
    // Where ranks share out weights, each of them is asked for every teacher's.
    for (size_t t = 0; several && config_.mesh.fsdp == 1 && t < teaches.size(); ++t)
      teaches[t] = std::ranges::any_of(shares[t], [](float share) { return share > 0; });
    sides = teacher_sides(*teachers_, theirs, strategy_, teaches);
    tops.resize(sides.size());
    for (size_t t = 0; t < tops.size(); ++t)
      if (teaches[t] && teachers_->is_remote(t)) tops[t] = ask(teachers_->remote(t));
  }
  const Side student(*roles_.policy.model, own, strategy_.tap(),
                     layers_of(strategy_.pairs(), &LayerPair::student));
  // Nothing to compare is a loss all the same: routers may have one of all tokens, and ranks that
  // divide the weights make equally many passes backward.
  std::vector<at::Tensor> found{{}, student.hidden().flatten().slice(0, 0, 0)};
  for (size_t t = 0; t < sides.size(); ++t) {
    if (!sides[t] && !tops[t]) continue;
    const Reading reading{of_rank.pass(), student, std::move(sides[t]), tops[t]};
    Strategy::Comparison compared = strategy_.compare(reading);
    at::Tensor value = of_rank.of_targets(compared.value);
    if (several) value = value * at::tensor(shares[t], value.options());
    if (!found[0].defined()) found[0] = compared.logp;
    found.push_back(std::move(value));
  }
  if (!found[0].defined() && !pass.target_M.empty())
    found[0] =
        model_.token_logp(student.hidden(), of_rank.pass().row_M, of_rank.pass().target_M).logp;
  found[0] = of_rank.of_targets(found[0]);
  const std::vector<at::Tensor> here = ops::to_host(found);
  Losses out{here[1], {}, strategy_.count(pass), static_cast<double>(pass.num_targets())};
  for (size_t i = 2; i < here.size(); ++i) out.distill = i == 2 ? here[i] : out.distill + here[i];
  if (!pass.target_M.empty()) out.task = -here[0];
  if (training && out.distill.numel() == 0) out.distill = here[1];
  if (training && !out.task.defined()) out.task = here[1];
  return out;
}

train::Loss DistillTask::loss(const train::ForwardPass& pass) {
  const double alpha = distill_.alpha();
  const Losses of_pass = losses(pass, true, group_of_row());
  train::Loss loss;
  const auto add = [&](const char* name, const char* logged, double coefficient,
                       const at::Tensor& value, double count, double denominator) {
    if (value.numel() > 0) loss.means.push_back({logged, train::ordered_sum(value), count});
    if (coefficient > 0)
      loss.terms.push_back(
          {.name = name, .coefficient = coefficient, .value = value, .denominator = denominator});
  };
  add("distill", kDistillLoss.c_str(), alpha, of_pass.distill, of_pass.distill_count,
      distill_count_);
  add("task", kTaskLoss.c_str(), 1 - alpha, of_pass.task, of_pass.task_count,
      std::max(supervised_, 1.0));
  add_group_means(loss.means, pass, of_pass, group_of_row());
  return loss;
}

void DistillTask::add_group_means(std::vector<train::Mean>& means, const train::ForwardPass& pass,
                                  const Losses& losses, const train::GroupOfUnit& group_of) const {
  if (!format_.groups) return;
  if (losses.distill.numel() > 0) {
    const Strategy::Places places = strategy_.places(pass);
    train::add_group_means(means, kDistillLoss, losses.distill, pass.units_of(places.token),
                           group_of, places.count);
  }
  if (losses.task.defined() && losses.task.numel() > 0)
    train::add_group_means(means, kTaskLoss, losses.task, pass.units_of(pass.row_M), group_of);
}

// Sets the mixture of the metric, which is a distill_loss, and of the same rows' task_loss.
void DistillTask::combine(MetricsRow& row, const std::string& metric) const {
  const std::string in_group = train::group_metric(kDistillLoss, "");
  std::vector<std::string> prefixes{"", "eval/"};
  for (const std::string& set : train::set_names(evaluation_.sources()))
    prefixes.push_back("eval/" + set + "/");
  size_t at = std::string::npos;
  for (const std::string& prefix : prefixes)
    if (metric == prefix + kDistillLoss)
      at = prefix.size();
    else if (metric.starts_with(prefix + in_group))
      at = prefix.size() + in_group.find(kDistillLoss);
  if (at == std::string::npos) return;
  const auto named = [&](const std::string& name) {
    return std::string(metric).replace(at, kDistillLoss.size(), name);
  };
  const double alpha = distill_.alpha();
  row.set(named("loss"), alpha * row.number(metric).value_or(0) +
                             (1 - alpha) * row.number(named(kTaskLoss)).value_or(0));
}

void DistillTask::describe_step(MetricsRow& row) {
  SftTask::describe_step(row);
  const auto values = row.values();
  for (const auto& [name, value] : values)
    if (name != kDistillLoss) combine(row, name);
  if (sampler_) sampler_->describe(row);
  if (crosses_) row.set("aligned_fraction", aligned_ / std::max(supervised_, 1.0));
}

void DistillTask::measure(size_t set, const train::ForwardPass& pass,
                          const train::GroupOfUnit& group_of, train::EvaluationSums& sums) {
  const Losses found = losses(pass, false, group_of);
  if (found.distill.numel() > 0)
    sums.add_mean(set, kDistillLoss, train::ordered_sum(found.distill), found.distill_count);
  if (found.task.defined())
    sums.add_mean(set, kTaskLoss, train::ordered_sum(found.task), found.task_count);
  std::vector<train::Mean> means;
  add_group_means(means, pass, found, group_of);
  sums.add_means(set, means);
}

bool DistillTask::evaluate_sampled(MetricsRow& row, const std::function<bool()>& stop) {
  if (evaluation_.sources().empty()) return false;
  const at::NoGradGuard no_grad;
  train::EvaluationSums sums(train::set_names(evaluation_.sources()));
  for (size_t set = 0; set < evaluation_.sources().size(); ++set) {
    const SampledRows::Evaluation sampled = sampler_->evaluation(evaluation_, set, stop);
    const train::GroupOfUnit group_of = [&sampled](int64_t unit) -> const std::string& {
      return sampled.groups.at(static_cast<size_t>(unit));
    };
    for (const train::ForwardPass& pass : sampled.passes) {
      if (stop()) break;
      measure(set, pass, group_of, sums);
      sums.add_total(set, "supervised_tokens", pass.num_targets());
    }
  }
  if (!sums.reduce(group_, stop())) return false;
  sums.write(row);
  return true;
}

bool DistillTask::evaluate(MetricsRow& row, const std::function<bool()>& stop) {
  const train::SftEvaluation::Measure both =
      [this](size_t set, const train::ForwardPass& pass, const train::GroupOfUnit& group_of,
             train::EvaluationSums& sums) { measure(set, pass, group_of, sums); };
  const bool made =
      sampler_ ? evaluate_sampled(row, stop) : evaluation_.run(model_, row, stop, messages_, both);
  if (!made) return false;
  const auto values = row.values();
  for (const auto& [name, value] : values) combine(row, name);
  return true;
}

std::vector<MetricInfo> DistillTask::metrics() const {
  return distill_metrics({.groups = static_cast<bool>(format_.groups),
                          .crosses = crosses_,
                          .samples = static_cast<bool>(sampler_)});
}

std::vector<MetricInfo> distill_metrics(const MeasuredParts& parts) {
  std::vector<MetricInfo> infos{
      {"distill_loss", "", "losses",
       "the strategy's divergence or distance between student and teacher", "falls", true,
       "distill"},
      {"task_loss", "", "losses", "negative log-likelihood per supervised token, in nats", "", true,
       "task"}};
  if (parts.groups)
    for (const auto& [metric, unit, help] :
         {std::tuple{"loss", "", "mixture of a group's distill_loss and task_loss"},
          {"distill_loss", "", "distill_loss of a group's rows"},
          {"task_loss", "nats", "negative log-likelihood of a group's supervised tokens"}})
      infos.push_back(train::group_metric_info(metric, unit, help));
  if (parts.crosses)
    infos.push_back({"aligned_fraction", "", "tokens that the teacher's tokens align with",
                     "distill.cross_tokenizer: share of the supervised tokens in spans that are "
                     "compared",
                     "near 1"});
  if (parts.samples) {
    infos.push_back({"completion_length_mean", "tokens", "completions",
                     "on_policy: mean length of sampled completions"});
    infos.push_back({"truncated_fraction", "", "completions",
                     "on_policy: share of sampled completions truncated at max_new_tokens"});
    infos.push_back({"on_policy_share", "", "completions",
                     "on_policy: share of the step's rows whose completion the student sampled",
                     "near distill.lambda on average"});
    infos.push_back({"rollout_seconds", "s", "time", "on_policy: time spent sampling"});
  }
  return infos;
}

}  // namespace temper::distill
