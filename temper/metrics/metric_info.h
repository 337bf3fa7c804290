// Declarations of metrics, made by whoever writes them, so that the console's line, the report's
// charts and docs/metrics.md need to know no metric by name.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace temper {

struct MetricInfo {
  std::string name;  // name in the row: "loss"; "rewards/*" declares every name that begins so
  std::string unit;  // "s", "bytes", "tokens", "tokens/s", any other word, or empty: a plain number
  std::string
      group;  // title of the report's chart, shared by the metrics of one group; empty: no chart
  std::string help;          // one sentence
  std::string healthy = {};  // what is usual, by rule of thumb; empty: nothing to say
  // whether the console's line shows it; there, earlier declarations are more important
  bool console = false;
  std::string label = {};  // name on the console; empty: `name`
};

// The declaration of a name, or null. A name that is declared in full goes before one that ends in
// `*`.
const MetricInfo* find_metric(std::span<const MetricInfo> metrics, std::string_view name);

// The declared metric that an evaluation's name is a measurement of: "loss" of "eval/loss" and of
// "eval/SET/loss". Null where there is none, or where the name does not begin with "eval/". `rest`,
// where given, becomes the name without what stands before the metric's: "rewards/exact" of
// "eval/SET/rewards/exact".
const MetricInfo* find_evaluated_metric(std::span<const MetricInfo> metrics, std::string_view name,
                                        std::string_view* rest = nullptr);

// The name of a metric on the console: its label, for `rewards/*` the name's own end.
std::string metric_label(const MetricInfo& info, std::string_view name);

}  // namespace temper
