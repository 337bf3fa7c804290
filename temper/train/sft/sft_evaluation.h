// Evaluation of supervised rows: the loss on one or several named sets, and the model's answers to
// a few rows of each.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "temper/data/loader.h"
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
  using Read = data::Loader<data::SftRow>::Read;
  // Opens the sets that the config names. tokenizer: null where there is none.
  SftEvaluation(const RunConfig& config, const VerbRows<data::SftRow>& rows,
                std::shared_ptr<const Tokenizer> tokenizer, dist::Group& group);

  // Throws DataError where one of the first rows is wrong, or a set has none.
  void check_rows() const;

  // Adds the measurements of a pass over rows of one set, which may have no targets; `groups` names
  // its rows' groups.
  using Measure = std::function<void(size_t set, const ForwardPass& pass, const GroupOfUnit& groups,
                                     EvaluationSums& sums)>;
  // eval/loss, the mean negative log-likelihood under any sft.loss, and eval/perplexity, or what
  // `measure` adds; eval/supervised_tokens and eval/rows. False: there are no
  // sets, or `stop` said so. Every rank must call it.
  bool run(models::CausalLM& model, MetricsRow& row, const std::function<bool()>& stop,
           Messages& messages, const Measure& measure = {});
  const std::vector<data::SourceSpec>& sources() const { return sources_; }
  const data::RowSet& set(size_t i) const { return *sets_[i]; }
  const Read& reader() const { return read_; }
  std::vector<Report::Table> tables() const;

 private:
  void measure_loss(models::CausalLM& model, size_t set, const ForwardPass& pass,
                    const GroupOfUnit& groups, EvaluationSums& sums) const;
  void add_set(size_t set, const std::function<bool()>& stop, const Measure& measure,
               EvaluationSums& sums);
  void sample(models::CausalLM& model, int64_t step, Messages& messages);

  const RunConfig& config_;
  Read read_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  dist::Group& group_;
  std::vector<data::SourceSpec> sources_;
  std::vector<std::unique_ptr<data::RowSet>> sets_;
  std::vector<EvalSample> samples_;
};

}  // namespace temper::train
