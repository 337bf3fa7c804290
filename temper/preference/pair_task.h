// Rows, passes, evaluation and state that the tasks over preferences share. A verb's own task adds
// the loss of a batch.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "temper/preference/reference.h"
#include "temper/train/evaluation.h"
#include "temper/train/trainer.h"

namespace temper::preference {

// Rows that a batch needs where each is compared with the others (KTO).
constexpr int64_t kFewestUnpaired = 2;

// The rows of a step, or of an evaluation's batch. It is moved, never copied: units refer to rows.
struct Batch {
  Batch() = default;
  Batch(Batch&&) = default;
  Batch& operator=(Batch&&) = default;

  std::vector<PreferenceRow> rows;     // [rows] in the order of the units
  std::vector<train::PackUnit> units;  // units of the rows' tokens
  double chosen = 0, rejected = 0;     // number of rows with that side
  double chosen_tokens = 0;            // targets of the chosen completions
  double kl = 0;                       // KTO's estimate
  std::vector<double> transported;     // [rows] AOT's Ratios::transported_P
  bool training = false;               // dropout of adapters is on
  bool grouped = false;                // rows have groups, of which there are metrics
  double completions() const { return chosen + rejected; }
};

// The declarations of all metrics of these tasks; groups: of groups of rows, too.
std::vector<MetricInfo> pair_metrics(bool groups = true);

class PairTask : public train::Task {
 public:
  // Reads the rows of data.eval; training rows are read as they are drawn.
  PairTask(const PreferenceConfig& config, data::PreferenceFormat format, dist::Group& group,
           train::Messages& messages);

  int64_t planned_steps() const override;
  std::string work() const override;
  std::optional<train::StepPlan> next(int64_t step) override;
  train::Loss loss(const train::ForwardPass& pass) override { return loss_of(batch_, pass); }
  void before_update(int64_t step) override;
  void describe_step(MetricsRow& row) override;
  bool evaluate(MetricsRow& row, const std::function<bool()>& stop) override;
  train::TaskState state() const override;
  void restore(const train::TaskState& state, const std::string& where) override;
  std::vector<MetricInfo> metrics() const override;
  std::vector<std::pair<std::string, std::string>> summary() const override;

 protected:
  // The loss of a pass of the batch: terms whose denominators are of the whole batch.
  virtual train::Loss loss_of(const Batch& batch, const train::ForwardPass& pass) = 0;
  // Computes a batch's estimates before its passes. With `group`, all ranks call it with the same
  // batch.
  virtual void prepare(Batch& /*batch*/, dist::Group* /*group*/) {}

  train::PassOptions pass_options(const Batch& batch) const;
  // Rows and sets, for a reference that is computed before.
  ReferenceRows all_rows() const;
  dist::Group& group() { return group_; }

  const PreferenceConfig& config_;
  train::Messages& messages_;

 private:
  Batch batch_of(std::vector<PreferenceRow> rows, bool training) const;
  void evaluate_batch(size_t set, Batch batch, train::EvaluationSums& sums);

  data::PreferenceFormat format_;
  train::VerbRows<PreferenceRow> rows_;
  Targets targets_;
  dist::Group& group_;
  data::Loader<PreferenceRow> loader_;
  data::RowSurvey survey_;
  std::vector<data::SourceSpec> eval_sources_;
  std::vector<std::unique_ptr<data::RowSet>> eval_rows_;
  data::LoaderState done_;  // the loader's state after the last step
  int64_t steps_ = 0;       // of the epochs
  Batch batch_;             // the step's batch
  bool said_joined_ = false;
};

// How the config reads rows.
data::PreferenceFormat format_of(const PreferenceConfig& config,
                                 std::shared_ptr<const Tokenizer> tokenizer,
                                 std::shared_ptr<const ChatTemplate> chat);

// The verb's rows in this format, and what its loss reads of them.
train::VerbRows<PreferenceRow> pair_rows(const PreferenceConfig& config,
                                         const data::PreferenceFormat& format);
Targets targets_of(const PreferenceConfig& config);
// Under a loss that takes completions without their opposites margin and accuracy are of pairs
// among them: throws ConfigError where they are to end the run or choose its weights, and the
// evaluation, which `read` reads, has no pair.
void check_pair_metrics(const PreferenceConfig& config,
                        const data::Loader<PreferenceRow>::Read& read);

// Under such a loss each completion is compared with those of other rows: throws DataError where
// data.train, drawn in this order, or a set of the evaluation has too few.
void check_number_of_rows(const PreferenceConfig& config, const data::RowOrder& order,
                          const data::RowSurvey& survey,
                          std::span<const std::unique_ptr<data::RowSet>> evaluation);
// train::check_rows_train of pairs.
void check_pairs_train(const PreferenceConfig& config, const data::LoaderState& rows,
                       int64_t all_rows, bool last);

// The rewards of a pass's completions, and the rows that they are of.
struct PassRewards {
  at::Tensor chosen_C, rejected_R;
  const std::vector<int64_t>& chosen_row_C;
  const std::vector<int64_t>& rejected_row_R;
};
// Logs reward_chosen, reward_rejected, and over pairs margin and accuracy (chosen above rejected,
// ties not). Of batches whose rows have groups: the same by group, and the terms' sum as loss by
// group; a term's values are of the rows chosen_row_C, with `unpaired` followed by rejected_row_R.
void add_means(train::Loss& loss, const Batch& batch, const PassRewards& rewards,
               bool unpaired = false);

// The sum of float64 values in their order.
double total(const at::Tensor& values);

}  // namespace temper::preference
