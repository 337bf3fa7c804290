#include "temper/train/sft.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/text/special_tokens.h"

namespace temper::train {
namespace {

constexpr int64_t kRowsToJudge = 64;

}  // namespace

data::SftFormat sft_format(const RunConfig& config, const Policy& policy) {
  const data::DataSection& section = config.data;
  data::SftFormat f;
  f.tokenizer = policy.tokenizer;
  f.chat = policy.chat;
  section.apply_to(f);
  f.train_on = section.train_on;
  f.conversation = section.conversation;
  f.vocabulary = policy.model->vocab_size;
  if (!policy.model->eos_token_ids.empty()) f.eos = policy.model->eos_token_ids[0];
  if (policy.tokenizer)
    if (const auto id = end_token(config.model.path, *policy.tokenizer)) f.eos = id;
  return f;
}

Unit unit_of(const data::SftRow& row) {
  Unit unit;
  for (const data::Segment& segment : row.segments)
    unit.segments.push_back({segment.parent, segment.tokens, segment.labels, 0});
  return unit;
}

void SftConfig::validate() const {
  RunConfig::validate();
  need(!data.train.empty(), "data.train", "a file of rows, or a list of {path, weight, name}");
}

SftTask::SftTask(const SftConfig& config, Roles& roles, dist::Group& group, Messages& messages,
                 data::Loader<data::SftRow>::Read read)
    : config_(config),
      model_(*roles.policy.model),
      group_(group),
      messages_(messages),
      format_(sft_format(config, roles.policy)),
      loader_(data::training_sources(config.data, static_cast<uint64_t>(config.seed)),
              loader_options(config, config.train.batch_size),
              read ? read : data::sft_reader(format_)),
      survey_(survey_rows<data::SftRow>(loader_.order(), read ? read : data::sft_reader(format_))),
      eval_sources_(data::evaluation_sources(config.data, static_cast<uint64_t>(config.seed))) {
  done_ = loader_.state();
  for (const data::SourceSpec& source : eval_sources_)
    eval_rows_.push_back(std::make_unique<data::RowSet>(source));
}

int64_t SftTask::planned_steps() const {
  return loader_.order().steps(config_.train.epochs.value_or(1), survey_);
}

std::optional<StepPlan> SftTask::next(int64_t) {
  std::vector<data::SftRow> rows = loader_.next();
  if (rows.empty()) return {};
  return plan(std::move(rows));
}

StepPlan SftTask::plan(std::vector<data::SftRow> rows) {
  rows_ = std::move(rows);
  StepPlan plan;
  std::vector<Unit> units;
  for (const data::SftRow& row : rows_) {
    plan.tokens += static_cast<double>(row.num_tokens());
    plan.supervised_tokens += static_cast<double>(row.supervised());
    units.push_back(unit_of(row));
  }
  supervised_ = plan.supervised_tokens;
  plan.passes = plan_passes(units, pass_tokens(config_), group_.rank(), group_.size());
  return plan;
}

Loss SftTask::loss(const ForwardPass& pass) {
  const double z_loss = config_.train.z_loss, denominator = std::max(supervised_, 1.0);
  const ops::TokenLogp out =
      token_logp(model_, pass,
                 {.log_sum_exp = z_loss > 0,
                  .recompute = config_.train.recompute == TrainSection::Recompute::kBlocks,
                  .dropout = true});
  Loss loss{{{.name = "nll", .value = -out.logp, .denominator = denominator}}, {}};
  if (z_loss > 0)
    loss.terms.push_back({.name = "z_loss",
                          .coefficient = z_loss,
                          .value = out.log_sum_exp.square(),
                          .denominator = denominator});
  return loss;
}

// A run that trains nothing is no success: it ends once enough rows are known to be of no use.
void SftTask::before_update(int64_t step) {
  warn_about_data();
  const data::LoaderState& s = loader_.state();
  const bool enough = s.rows >= std::min(loader_.order().rows(), kRowsToJudge) ||
                      step == config_.train.max_steps.value_or(planned_steps());
  check<DataError>(s.untrained < s.rows || !enough, config_.where("data.train"), ": none of the ",
                   s.rows, " rows so far trains a token",
                   rows_[0].untrained.empty() ? "" : "; of the last ones: ", rows_[0].untrained);
}

void SftTask::describe_step(MetricsRow& row) {
  done_ = loader_.state();
  const auto& sources = loader_.order().sources();
  for (size_t i = 0; i < sources.size() && sources.size() > 1; ++i)
    row.set("rows/" + sources[i].name, loader_.state().counts[i]);
}

void SftTask::evaluate_set(size_t set, const std::function<bool()>& stop, EvaluationSums& sums) {
  data::SftFormat format = format_;
  if (format.overlong == data::Overlong::kError) format.overlong = data::Overlong::kTruncate;
  ForwardPass pass;
  const auto flush = [&] {
    if (pass.forest->num_tokens() > 0) evaluate_pass(set, pass, sums);
    sums.add_total(set, "supervised_tokens", pass.num_targets());
    pass = ForwardPass();
  };
  const data::RowSet& file = *eval_rows_[set];
  for (int64_t r = group_.rank(); r < file.size() && !stop(); r += group_.size()) {
    bool truncated = false;
    const std::optional<data::SftRow> row =
        data::read_sft_row(format, file.row(r), file.where(r), &truncated);
    if (!row) continue;
    if (pass.forest->num_tokens() + row->num_computed() > config_.train.micro_batch_tokens) flush();
    pass.add(unit_of(*row), 0);
    sums.add_total(set, "rows", 1);
  }
  flush();
}

void SftTask::evaluate_pass(size_t set, const ForwardPass& pass, EvaluationSums& sums) {
  if (pass.target_M.empty()) return;
  sums.add_mean(set, "loss", -ordered_sum(token_logp(model_, pass, {}).logp),
                static_cast<double>(pass.num_targets()));
}

bool SftTask::evaluate(MetricsRow& row, const std::function<bool()>& stop) {
  if (eval_rows_.empty()) return false;
  const at::NoGradGuard no_grad;
  EvaluationSums sums(set_names(eval_sources_));
  for (size_t set = 0; set < eval_rows_.size(); ++set) evaluate_set(set, stop, sums);
  if (!sums.reduce(group_, stop())) return false;
  sums.write(row);
  return true;
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

void SftTask::warn_about_data() {
  const data::LoaderState& s = loader_.state();
  const int64_t longest = config_.data.max_length;
  if (s.truncated > 0)
    messages_.warn_once("truncated rows",
                        str("rows longer than data.max_length, ", longest, " tokens, are cut (",
                            s.truncated, " of the first ", s.rows, ")"));
  if (s.dropped > 0)
    messages_.warn_once("dropped rows", str("rows longer than data.max_length, ", longest,
                                            " tokens, are left out (", s.dropped, " of the first ",
                                            s.rows + s.dropped, ")"));
  if (s.untrained > 0)
    messages_.warn_once("untrained rows",
                        str(s.untrained, " of the first ", s.rows, " rows train no token"));
  if (s.rows > 0 && s.with_eos == 0 && !model_.eos_token_ids.empty())
    messages_.warn_once("end token", str("no row trains the end token ", model_.eos_token_ids[0],
                                         ": the model will not learn to stop"));
}

std::vector<std::pair<std::string, std::string>> SftTask::summary() const {
  const data::LoaderState& rows = loader_.state();
  std::vector<std::pair<std::string, std::string>> lines{
      {"rows", std::to_string(rows.rows)},
      {"rows cut", std::to_string(rows.truncated)},
      {"rows left out", std::to_string(rows.dropped)}};
  const auto& sources = loader_.order().sources();
  for (size_t i = 0; i < sources.size() && sources.size() > 1; ++i)
    lines.emplace_back("rows of " + sources[i].name, std::to_string(rows.counts[i]));
  return lines;
}

RunOutcome run_sft(SftConfig& config, const RunHost& host) {
  config.resolve("sft");
  const std::shared_ptr<dist::Group> group = dist::Group::from_environment(host.stop);
  Roles roles(config);
  RunDirectory directory(config, host, *group);
  SftTask task(config, roles, *group, directory);
  return run_task(config, roles, *group, directory, task);
}

}  // namespace temper::train
