#include "temper/train/sft/sft.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <array>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/ops/pointwise.h"
#include "temper/train/ranks.h"
#include "temper/train/run/opening.h"
#include "temper/train/run/row_messages.h"
#include "temper/train/run_task.h"

namespace temper {

template <>
inline constexpr std::array enum_names<train::SftSection::Loss> = {"nll", "dft"};

}  // namespace temper

namespace temper::train {

void SftSection::fields(Fields& f) {
  f.add("loss", loss,
        "loss of a supervised token: its negative log-likelihood (nll), or that times the token's "
        "probability, a constant (dft, dynamic fine-tuning)");
}

void SftConfig::fields(Fields& f) {
  RunConfig::fields(f);
  f.add("sft", sft, "the loss");
  f.add("rollout", rollout, "how completions for train.eval_rewards are sampled");
}

void SftConfig::complete() {
  RunConfig::complete();
  warn_of_idle_rollout();
}

std::vector<std::string> SftConfig::evaluated_metrics() const {
  std::vector<std::string> metrics = RunConfig::evaluated_metrics();
  metrics.emplace_back("perplexity");
  return metrics;
}

data::SftFormat sft_format(const RunConfig& config, const Policy& policy) {
  const data::DataSection& section = config.data;
  data::SftFormat f;
  f.tokenizer = policy.tokenizer;
  f.chat = policy.chat;
  section.apply_to(f);
  f.images = images_of(config, policy.tokenizer.get());
  f.train_on = section.train_on;
  f.conversation = section.conversation;
  f.vocabulary = policy.model->vocab_size;
  f.set_ends(config.model.path, policy.model->eos_token_ids);
  return f;
}

VerbRows<data::SftRow> sft_rows(const RunConfig& config, const data::SftFormat& format) {
  return {data::sft_reader(format), data::sft_reader(evaluation_format(format)),
          loader_options(config, config.train.batch_size), data::sft_pieces(format)};
}

SftTask::SftTask(const SftConfig& config, Roles& roles, dist::Group& group, Messages& messages,
                 data::SftFormat format, const VerbRows<data::SftRow>& rows)
    : config_(config),
      model_(*roles.policy.model),
      group_(group),
      messages_(messages),
      format_(std::move(format)),
      loader_(rows.training_sources(config), rows.options, rows.train),
      evaluation_(config, rows, format_.tokenizer, group),
      survey_(survey_rows<data::SftRow>(loader_.order(), rows.train)) {
  evaluation_.check_rows();
  done_ = loader_.state();
  steps_ = loader_.order().steps(config.train.epochs.value_or(1), survey_);
}

int64_t SftTask::planned_steps() const { return steps_; }

std::string SftTask::work() const {
  return str("batches of up to ", config_.train.batch_size, " rows, from ",
             text_of(loader_.order(), survey_));
}

std::optional<StepPlan> SftTask::next(int64_t) {
  std::vector<data::SftRow> rows = loader_.next();
  if (rows.empty()) return {};
  return plan(std::move(rows));
}

StepPlan SftTask::plan(std::vector<data::SftRow> rows) {
  rows_ = std::move(rows);
  StepPlan plan;
  std::vector<PackUnit> units;
  for (const data::SftRow& row : rows_) {
    plan.tokens += static_cast<double>(row.num_tokens());
    plan.supervised_tokens += static_cast<double>(row.supervised());
    units.push_back(unit_of(row));
  }
  plan.count_images(units);
  supervised_ = plan.supervised_tokens;
  plan.every_token = counts_every_token();
  plan.passes = plan_passes(units, pass_tokens(config_), group_, plan.every_token);
  return plan;
}

Loss SftTask::loss(const ForwardPass& pass) {
  const double z_loss = config_.train.z_loss, denominator = std::max(supervised_, 1.0);
  const ops::TokenLogp out =
      token_logp(model_, pass,
                 {.log_sum_exp = z_loss > 0,
                  .recompute = config_.train.recompute == TrainSection::Recompute::kBlocks,
                  .dropout = true,
                  .watched = true});
  const at::Tensor nll_M = -out.logp;
  const bool dft = config_.sft.loss == SftSection::Loss::kDft;
  // DFT (Wu et al., arXiv 2508.05629, equation 9): -sg[p] log p.
  const at::Tensor loss_M = dft ? ops::exp(out.logp.detach()) * nll_M : nll_M;
  Loss loss{{{.name = dft ? "dft" : "nll", .value = loss_M, .denominator = denominator}}, {}};
  loss.means.push_back({.name = "perplexity",
                        .sum = ordered_sum(nll_M),
                        .count = static_cast<double>(pass.num_targets()),
                        .exponential = true});
  if (format_.groups)
    add_group_means(loss.means, "loss", loss_M.detach(), pass.units_of(pass.row_M), group_of_row());
  if (z_loss > 0)
    loss.terms.push_back({.name = "z_loss",
                          .coefficient = z_loss,
                          .value = out.log_sum_exp.square(),
                          .denominator = denominator});
  return loss;
}

std::vector<MetricInfo> SftTask::metrics() const { return sft_metrics(); }

std::vector<MetricInfo> sft_metrics() {
  return {{"perplexity", "", "perplexity",
           "e to the power of the mean negative log-likelihood per supervised token", "falls"},
          group_metric_info("loss", "nats", "mean loss of a group's supervised tokens")};
}

void SftTask::before_update(int64_t step) {
  const data::LoaderState& s = loader_.state();
  warn_about_rows(s, config_.data.max_length, format_, messages_);
  warn_about_notices(survey_, format_.control_tokens, messages_);
  if (needs_labels_)
    check_rows_train(config_, s, loader_.order().rows(),
                     step == config_.train.max_steps.value_or(steps_), rows_[0].untrained);
}

void SftTask::describe_step(MetricsRow& row) {
  done_ = loader_.state();
  const auto& sources = loader_.order().sources();
  for (size_t i = 0; i < sources.size() && sources.size() > 1; ++i)
    row.set("rows/" + sources[i].name, loader_.state().counts[i]);
}

bool SftTask::evaluate(MetricsRow& row, const std::function<bool()>& stop) {
  return evaluation_.run(model_, row, stop, messages_);
}

TaskState SftTask::state() const {
  TaskState state;
  state.values["loader"] = done_.to_json();
  return state;
}

void SftTask::restore(const TaskState& state, const std::string& where) {
  loader_.restore(loader_state(state.values, where));
  done_ = loader_.state();
}

std::vector<std::pair<std::string, std::string>> SftTask::summary() const {
  return row_summary(loader_.state(), loader_.order().sources());
}

std::vector<Report::Table> SftTask::tables() const { return evaluation_.tables(); }

RunOutcome run_sft(SftConfig& config, const RunHost& host) {
  config.resolve("sft");
  const dist::Mesh mesh = join_mesh(config, host);
  Roles roles(config, mesh);
  RunDirectory directory(config, host, mesh);
  SftTask task(config, roles, *mesh.data_parallel, directory);
  return run_task(config, roles, mesh, directory, task);
}

}  // namespace temper::train
