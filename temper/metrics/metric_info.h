// What a metric is: declared by whoever writes it, so that the console's line and the report's
// charts need to know no metric by name.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace temper {

struct MetricInfo {
  std::string name;  // in the row: "loss"; "rewards/*" declares every name that begins so
  std::string unit;  // "s", "bytes", "tokens", "tokens/s", any other word, or empty: a plain number
  std::string
      group;  // title of the report's chart, shared by the metrics of one group; empty: no chart
  std::string help;  // one sentence
  bool console =
      false;  // in the console's line, where the order of declarations is the order of importance
  std::string label = {};  // what the console calls it; empty: its name
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

// What the console calls a metric: its label, for `rewards/*` the name's own end.
std::string metric_label(const MetricInfo& info, std::string_view name);

}  // namespace temper
