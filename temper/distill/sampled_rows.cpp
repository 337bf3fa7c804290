#include "temper/distill/sampled_rows.h"

#include <ATen/core/grad_mode.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "temper/base/clock.h"
#include "temper/base/error.h"
#include "temper/data/prompt_row.h"
#include "temper/dist/peer_watch.h"
#include "temper/nn/unit.h"

namespace temper::distill {
namespace {

// Keys of evaluation prompts stand apart from those of training prompts, so that evaluating changes
// no sample.
constexpr int64_t kEvaluationKeys = int64_t{1} << 40;

data::SftRow prompt_only(std::vector<int32_t> tokens) {
  data::TokenPath path;
  path.labels.assign(tokens.size(), -100);
  path.tokens = std::move(tokens);
  return data::row_of(std::move(path));
}

void append(data::SftRow& row, const std::vector<int32_t>& completion) {
  data::Segment& segment = row.segments.at(0);
  segment.tokens.insert(segment.tokens.end(), completion.begin(), completion.end());
  segment.labels.insert(segment.labels.end(), completion.begin(), completion.end());
}

}  // namespace

bool is_off_policy(double fraction, int64_t number) {
  const double n = static_cast<double>(number);
  return std::floor((n + 1) * fraction) > std::floor(n * fraction);
}

data::Loader<data::SftRow>::Read prompt_or_row_reader(const DistillConfig& config,
                                                      const train::Policy& policy) {
  const data::SftFormat format = train::sft_format(config, policy);
  return [format, read_row = data::sft_reader(format), prompts = data::prompt_reader(format),
          fraction = config.distill.off_policy_fraction](
             const data::RowOrder::Drawn& drawn,
             data::LoaderState& state) -> std::optional<data::SftRow> {
    // Where rows are used both ways, each must fit both ways: which are left out then depends on
    // nothing else, and the steps of the run can be planned.
    if (fraction == 1) return read_row(drawn, state);
    std::optional<data::SftRow> row;
    if (fraction > 0 && !(row = read_row(drawn, state))) return {};
    std::optional<data::PromptRow> prompt = prompts(drawn, state);
    if (!prompt) return {};
    if (is_off_policy(fraction, state.rows)) return row;
    ++state.with_eos;  // a completion may end by itself
    return prompt_only(std::move(prompt->tokens));
  };
}

SampledRows::SampledRows(const DistillConfig& config, train::Policy& policy, dist::Group& group)
    : config_(config),
      policy_(policy),
      group_(group),
      engine_(*policy.model, config.rollout.engine_options(), policy.tokenizer) {}

std::map<int64_t, SampledRows::Completion> SampledRows::sample(
    const std::map<int64_t, std::vector<int32_t>>& prompts, const std::function<bool()>& stop) {
  const at::NoGradGuard no_grad;
  const nn::Gathered whole(*policy_.model);  // ranks make different numbers of passes
  std::vector<generate::RequestId> requests;
  for (const auto& [key, tokens] : prompts)
    requests.push_back(engine_.submit({key, tokens, 1, config_.rollout.options(config_.seed)}));
  std::map<int64_t, Completion> completions;
  const auto done = [&](generate::Completion c) {
    if (!c.cancelled) completions[c.index] = {std::move(c.tokens), c.stopped};
  };
  bool stopped = false;
  while (engine_.step({.done = done, .on_token = {}})) {
    dist::check_peers();
    if (stopped || !stop || !stop()) continue;
    stopped = true;
    for (const generate::RequestId id : requests) engine_.cancel(id);
  }
  engine_.release_memory();  // the next step samples with other weights
  return completions;
}

std::map<int64_t, SampledRows::Completion> SampledRows::gather(std::map<int64_t, Completion> mine) {
  if (group_.size() == 1) return mine;
  Json lines = Json::array();
  for (const auto& [key, c] : mine) lines.push_back({key, c.tokens, c.stopped});
  std::map<int64_t, Completion> all;
  for (const std::string& text : group_.all_gather(lines.dump()))
    for (const Json& line : parse_json(text, "another rank"))
      all[line[0].get<int64_t>()] = {line[1].get<std::vector<int32_t>>(), line[2].get<bool>()};
  return all;
}

void SampledRows::complete(std::vector<data::SftRow>& rows, int64_t first) {
  const double start = steady_seconds();
  std::map<int64_t, std::vector<int32_t>> mine;
  int64_t number = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t key = first + static_cast<int64_t>(i);
    if (is_off_policy(config_.distill.off_policy_fraction, key)) continue;
    if (number++ % group_.size() == group_.rank()) mine[key] = rows[i].segments.at(0).tokens;
  }
  completions_ = tokens_ = truncated_ = 0;
  for (const auto& [key, c] : gather(sample(mine))) {
    append(rows.at(static_cast<size_t>(key - first)), c.tokens);
    ++completions_;
    tokens_ += static_cast<double>(c.tokens.size());
    truncated_ += !c.stopped;
  }
  seconds_ = group_.all_reduce_max(steady_seconds() - start);
}

std::vector<train::ForwardPass> SampledRows::evaluation_passes(const data::RowSet& file, size_t set,
                                                               const std::function<bool()>& stop) {
  data::PromptFormat format = train::sft_format(config_, policy_);
  format.groups = nullptr;  // data.balance is of the rows that are trained
  if (format.overlong == data::Overlong::kError) format.overlong = data::Overlong::kTruncate;
  const int64_t first = kEvaluationKeys + (static_cast<int64_t>(set) << 32);
  std::map<int64_t, std::vector<int32_t>> prompts;
  for (int64_t r = group_.rank(); r < file.size(); r += group_.size()) {
    bool truncated = false;
    auto row = data::read_prompt_row(format, file.row(r), file.where(r), &truncated);
    if (row) prompts[first + r] = std::move(row->tokens);
  }
  std::vector<data::SftRow> rows;
  for (const auto& [key, c] : sample(prompts, stop)) {
    rows.push_back(prompt_only(prompts.at(key)));
    append(rows.back(), c.tokens);
  }
  std::vector<train::PackUnit> units;
  for (const data::SftRow& row : rows) units.push_back(train::unit_of(row));
  return train::plan_passes(units, train::pass_tokens(config_));
}

void SampledRows::describe(MetricsRow& row) const {
  const double count = std::max(completions_, 1.0);
  row.set("completion_length_mean", tokens_ / count);
  row.set("truncated_fraction", truncated_ / count);
  row.set("rollout_seconds", seconds_);
}

}  // namespace temper::distill
