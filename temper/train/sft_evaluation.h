// Evaluation of supervised rows: the loss on one or several named sets, and what the model answers
// to a few rows of each.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "temper/data/row_set.h"
#include "temper/data/sft_row.h"
#include "temper/train/config.h"
#include "temper/train/eval_samples.h"
#include "temper/train/evaluation.h"
#include "temper/train/forward_pass.h"
#include "temper/train/messages.h"

namespace temper::train {

// A row as a unit of a forward pass.
Unit unit_of(const data::SftRow& row);

class SftEvaluation {
 public:
  // Opens the sets that the config names. `format` reads their rows; too long ones are cut.
  SftEvaluation(const RunConfig& config, data::SftFormat format, dist::Group& group);

  // eval/loss, eval/supervised_tokens and eval/rows. False: there are no sets, or `stop` said so.
  // Every rank must call it.
  bool run(models::CausalLM& model, MetricsRow& row, const std::function<bool()>& stop,
           Messages& messages);
  std::vector<Report::Table> tables() const;

 private:
  void add_set(models::CausalLM& model, size_t set, const std::function<bool()>& stop,
               EvaluationSums& sums);
  void sample(models::CausalLM& model, int64_t step, Messages& messages);

  const RunConfig& config_;
  data::SftFormat format_;
  dist::Group& group_;
  std::vector<data::SourceSpec> sources_;
  std::vector<std::unique_ptr<data::RowSet>> sets_;
  std::vector<EvalSample> samples_;
};

}  // namespace temper::train
