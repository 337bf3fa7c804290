#include "temper/train/sft/sft_evaluation.h"

#include <ATen/core/grad_mode.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/metrics/activity.h"
#include "temper/train/loss.h"

namespace temper::train {

PackUnit unit_of(const data::SftRow& row) {
  PackUnit unit;
  for (const data::Segment& segment : row.segments)
    unit.segments.push_back({.parent = segment.parent,
                             .tokens = segment.tokens,
                             .labels = segment.labels,
                             .images = segment.images});
  return unit;
}

SftEvaluation::SftEvaluation(const RunConfig& config, const VerbRows<data::SftRow>& rows,
                             std::shared_ptr<const Tokenizer> tokenizer, dist::Group& group)
    : config_(config),
      read_(rows.evaluation),
      tokenizer_(std::move(tokenizer)),
      group_(group),
      sources_(rows.evaluation_sources(config)) {
  for (const data::SourceSpec& source : sources_)
    sets_.push_back(std::make_unique<data::RowSet>(source));
}

void SftEvaluation::check_rows() const {
  train::check_rows(sets_, [this](const data::RowSet& set, int64_t row) {
    return data::read_one(read_, set, row).has_value();
  });
}

void SftEvaluation::add_set(size_t set, const std::function<bool()>& stop, const Measure& measure,
                            EvaluationSums& sums) {
  ForwardPass pass;
  std::vector<std::string> groups;  // of the pass's rows
  const auto flush = [&] {
    const GroupOfUnit group_of = [&groups](int64_t row) -> const std::string& {
      return groups.at(static_cast<size_t>(row));
    };
    if (pass.forest->num_tokens() > 0) measure(set, pass, group_of, sums);
    sums.add_total(set, "supervised_tokens", pass.num_targets());
    pass = ForwardPass();
    groups.clear();
  };
  const data::RowSet& rows = *sets_[set];
  Activity activity("evaluating",
                    (rows.size() - group_.rank() + group_.size() - 1) / group_.size());
  for (int64_t r = group_.rank(); r < rows.size() && !stop(); r += group_.size()) {
    activity.advance();
    const std::optional<data::SftRow> row = data::read_one(read_, rows, r);
    if (!row) continue;
    if (pass.forest->num_tokens() + row->num_computed() > config_.train.micro_batch_tokens) flush();
    pass.add(unit_of(*row), groups.size());
    groups.push_back(row->group);
    sums.add_total(set, "rows", 1);
  }
  flush();
}

void SftEvaluation::measure_loss(models::CausalLM& model, size_t set, const ForwardPass& pass,
                                 const GroupOfUnit& groups, EvaluationSums& sums) const {
  if (pass.target_M.empty()) return;
  const at::Tensor nll = -token_logp(model, pass, {}).logp;
  const double nats = ordered_sum(nll), tokens = static_cast<double>(pass.num_targets());
  sums.add_mean(set, "loss", nats, tokens);
  sums.add_mean(set, "perplexity", nats, tokens, /*exponential=*/true);
  if (!config_.data.balance.groups()) return;
  std::vector<Mean> means;
  add_group_means(means, "loss", nll, pass.units_of(pass.row_M), groups);
  sums.add_means(set, means);
}

bool SftEvaluation::run(models::CausalLM& model, MetricsRow& row, const std::function<bool()>& stop,
                        Messages& messages, const Measure& measure) {
  if (sets_.empty()) return false;
  const Measure nll = [&](size_t set, const ForwardPass& pass, const GroupOfUnit& groups,
                          EvaluationSums& to) { measure_loss(model, set, pass, groups, to); };
  const at::NoGradGuard no_grad;
  EvaluationSums sums(set_names(sources_));
  for (size_t set = 0; set < sets_.size(); ++set) add_set(set, stop, measure ? measure : nll, sums);
  if (!sums.reduce(group_, stop())) return false;
  sums.write(row);
  if (group_.rank() == 0) sample(model, row.step(), messages);
  return true;
}

void SftEvaluation::sample(models::CausalLM& model, int64_t step, Messages& messages) {
  samples_.clear();
  for (const auto& set : sets_) {
    const size_t enough = samples_.size() + static_cast<size_t>(config_.train.eval_samples);
    for (int64_t r = 0; r < set->size() && samples_.size() < enough; ++r) {
      const auto row = data::read_one(read_, *set, r);
      EvalSample found = row ? eval_sample(*row) : EvalSample();
      if (!found.prompt.empty()) samples_.push_back(std::move(found));
    }
  }
  if (samples_.empty()) return;
  complete_samples(model, samples_, config_.train.eval_sample_tokens);
  if (!group_.is_writer()) return;
  const std::string directory = config_.output_dir + "/eval_samples";
  std::filesystem::create_directories(directory);
  write_file_atomic(str(directory, "/step-", step, ".jsonl"), to_lines(samples_, tokenizer_.get()));
  for (const EvalSample& sample : samples_) messages.note(describe(sample, tokenizer_.get()));
}

std::vector<Report::Table> SftEvaluation::tables() const {
  if (samples_.empty()) return {};
  return {to_table(samples_, tokenizer_.get())};
}

}  // namespace temper::train
