// Supervised fine-tuning: the loss of a step is the sum of the losses of its supervised tokens over
// their number.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "temper/data/loader.h"
#include "temper/generate/config.h"
#include "temper/train/group_means.h"
#include "temper/train/sft/sft_evaluation.h"
#include "temper/train/trainer.h"

namespace temper::train {

struct SftSection {
  enum class Loss { kNll, kDft };
  Loss loss = Loss::kNll;  // of a token
  void fields(Fields& f);
};

// The config of sft, and what verbs with its rows derive theirs from: those have no section `sft`.
struct SftConfig : RunConfig {
  SftSection sft;
  generate::RolloutSection rollout;
  void fields(Fields& f) override;
  std::vector<std::string> evaluated_metrics() const override;
  const generate::RolloutSection* sampling() const override { return &rollout; }

 protected:
  void complete() override;
};

// How rows are read for this policy.
data::SftFormat sft_format(const RunConfig& config, const Policy& policy);

// The rows of a verb that trains on rows in this format, and is evaluated on such rows.
VerbRows<data::SftRow> sft_rows(const RunConfig& config, const data::SftFormat& format);

// The declarations of the metrics of supervised fine-tuning beside trainer_metrics().
std::vector<MetricInfo> sft_metrics();

// Verbs whose rows are those of SFT derive from it and bring another loss.
class SftTask : public Task {
 public:
  // Opens the rows of data.eval; training rows are read as they are drawn.
  SftTask(const SftConfig& config, Roles& roles, dist::Group& group, Messages& messages)
      : SftTask(config, roles, group, messages, sft_format(config, roles.policy),
                [&](const data::SftFormat& format) { return sft_rows(config, format); }) {}
  using RowsOf = std::function<VerbRows<data::SftRow>(const data::SftFormat&)>;
  SftTask(const SftConfig& config, Roles& roles, dist::Group& group, Messages& messages,
          const data::SftFormat& format, const RowsOf& rows_of)
      : SftTask(config, roles, group, messages, format, rows_of(format)) {}

  int64_t planned_steps() const override;
  std::string work() const override;
  std::optional<StepPlan> next(int64_t step) override;
  Loss loss(const ForwardPass& pass) override;
  void before_update(int64_t step) override;
  void describe_step(MetricsRow& row) override;
  bool evaluate(MetricsRow& row, const std::function<bool()>& stop) override;
  TaskState state() const override;
  void restore(const TaskState& state, const std::string& where) override;
  std::vector<std::pair<std::string, std::string>> summary() const override;
  std::vector<Report::Table> tables() const override;
  std::vector<MetricInfo> metrics() const override;

 protected:
  // The step's passes, of these rows.
  StepPlan plan(std::vector<data::SftRow> rows);
  // The group of a row of the step.
  GroupOfUnit group_of_row() const {
    return [this](int64_t row) -> const std::string& {
      return rows_.at(static_cast<size_t>(row)).group;
    };
  }
  // Whether the loss reads more than targets (StepPlan::every_token): the load-balancing loss is of
  // all tokens.
  virtual bool counts_every_token() const { return config_.train.router_aux_loss.has_value(); }

  const SftConfig& config_;
  models::CausalLM& model_;
  dist::Group& group_;
  Messages& messages_;
  data::SftFormat format_;
  data::Loader<data::SftRow> loader_;
  SftEvaluation evaluation_;
  int64_t steps_ = 0;               // number of steps that the rows give
  std::vector<data::SftRow> rows_;  // rows of the step
  double supervised_ = 0;           // supervised tokens of the step
  bool needs_labels_ = true;        // a run whose rows have no labels trains nothing

 private:
  SftTask(const SftConfig& config, Roles& roles, dist::Group& group, Messages& messages,
          data::SftFormat format, const VerbRows<data::SftRow>& rows);

  data::RowSurvey survey_;
  data::LoaderState done_;  // the loader's state after the last step
};

// Trains as the config says, resuming where a run of the same output_dir stopped. Throws
// ConfigError, DataError, RunError.
RunOutcome run_sft(SftConfig& config, const RunHost& host);

}  // namespace temper::train
