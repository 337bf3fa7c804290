#include "temper/cli/experiments/worst_runs.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>

#include "temper/base/error.h"
#include "temper/metrics/row.h"
#include "temper/text/unicode.h"
#include "temper/train/hooks.h"

namespace temper::cli {
namespace {

// Says of a run that it ended before the step, if it did.
bool ended_before(const WorstRule& rule, const Combination& one, const std::string& directory) {
  int64_t last = 0;
  for (const MetricsRow& row : read_metrics_file(directory + "/metrics.jsonl"))
    last = std::max(last, row.step());
  if (last >= rule.after || !std::filesystem::exists(directory + "/final")) return false;
  std::cout << "sweep: " << printable(one.name) << " ended after step " << last
            << ", before --after " << rule.after << ": it is not compared" << std::endl;
  return true;
}

}  // namespace

void check_comparable(const WorstRule& rule, const train::RunConfig& config) {
  const train::TrainSection& t = config.train;
  check<ConfigError>(!t.max_steps || rule.after <= *t.max_steps, "--after: found ", rule.after,
                     ", expected at most train.max_steps, ", t.max_steps.value_or(0));
  if (!rule.by.starts_with("eval/")) return;
  config.check_evaluated("--by", rule.by);
  check<ConfigError>(t.eval_every > 0 && rule.after % t.eval_every == 0, "--after: found ",
                     rule.after, ", expected a step with an evaluation, as --by is ", rule.by,
                     ": a multiple of train.eval_every, ", t.eval_every);
}

std::optional<double> compared_value(const WorstRule& rule, const std::string& directory) {
  for (const MetricsRow& row : read_metrics_file(directory + "/metrics.jsonl"))
    if (row.step() == rule.after)
      if (row.find(rule.by)) return row.number(rule.by).value_or(std::nan(""));
  return {};
}

void choose_worst(const WorstRule& rule, std::vector<Combination>& runs,
                  const std::function<std::string(const Combination&)>& directory_of) {
  const bool larger = train::larger_is_better(train::Goal::kAuto, rule.by);
  struct Compared {
    double score, value;
    Combination* one;
  };
  std::vector<Compared> found;
  for (Combination& one : runs) {
    if (one.failed) continue;
    const std::string directory = directory_of(one);
    const std::optional<double> value = compared_value(rule, directory);
    if (!value && ended_before(rule, one, directory)) continue;
    check<ConfigError>(value.has_value(), "--by: the row of step ", rule.after, " in ", directory,
                       "/metrics.jsonl has no ", rule.by);
    const double score = larger ? *value : -*value;
    found.push_back({std::isnan(score) ? -HUGE_VAL : score, *value, &one});
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Compared& a, const Compared& b) { return a.score > b.score; });
  const auto count = static_cast<size_t>(*rule.share * static_cast<double>(found.size()));
  for (size_t i = found.size() - count; i < found.size(); ++i) {
    found[i].one->is_worst = true;
    std::cout << "sweep: " << printable(found[i].one->name) << " ends after step " << rule.after
              << ": " << rule.by << " " << found[i].value << std::endl;
  }
}

}  // namespace temper::cli
