// Evaluation of supervised rows: the loss on one or several named sets, and the model's answers to
// a few rows of each.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "temper/data/read/row_set.h"
#include "temper/data/rows/sft_row.h"
#include "temper/train/config.h"
#include "temper/train/evaluation.h"
#include "temper/train/forward_pass.h"
#include "temper/train/group_means.h"
#include "temper/train/messages.h"
#include "temper/train/run/eval_samples.h"

namespace temper::train {

// A row as a unit of a forward pass.
PackUnit unit_of(const data::SftRow& row);

class SftEvaluation {
 public:
  // Opens the sets that the config names. `format` reads their rows; too long ones are cut.
  SftEvaluation(const RunConfig& config, data::SftFormat format, dist::Group& group);

  // Throws DataError where one of the first rows is wrong, or a set has none. `read`: as
  // train::check_rows() has it; empty: rows are read with labels.
  using Read = std::function<bool(const data::RowSet& set, int64_t row)>;
  void check_rows(const Read& read = {}) const;

  // Adds the measurements of a pass over rows of one set, which may have no targets; `groups` names
  // its rows' groups.
  using Measure = std::function<void(size_t set, const ForwardPass& pass, const GroupOfUnit& groups,
                                     EvaluationSums& sums)>;
  // eval/loss, or what `measure` adds, eval/supervised_tokens and eval/rows. False: there are no
  // sets, or `stop` said so. Every rank must call it.
  bool run(models::CausalLM& model, MetricsRow& row, const std::function<bool()>& stop,
           Messages& messages, const Measure& measure = {});
  const std::vector<data::SourceSpec>& sources() const { return sources_; }
  const data::RowSet& set(size_t i) const { return *sets_[i]; }
  std::vector<Report::Table> tables() const;

 private:
  void measure_loss(models::CausalLM& model, size_t set, const ForwardPass& pass,
                    const GroupOfUnit& groups, EvaluationSums& sums) const;
  void add_set(size_t set, const std::function<bool()>& stop, const Measure& measure,
               EvaluationSums& sums);
  void sample(models::CausalLM& model, int64_t step, Messages& messages);
  std::optional<data::SftRow> read_row(const data::RowSet& set, int64_t row) const;

  const RunConfig& config_;
  data::SftFormat format_;
  dist::Group& group_;
  std::vector<data::SourceSpec> sources_;
  std::vector<std::unique_ptr<data::RowSet>> sets_;
  std::vector<EvalSample> samples_;
};

}  // namespace temper::train
