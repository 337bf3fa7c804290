// What a run's directory holds, for verbs that look at runs without being one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "temper/base/config/yaml.h"
#include "temper/metrics/report/report.h"
#include "temper/metrics/row.h"

namespace temper::cli {

// Whether the directory is that of a run: it has a config.yaml.
bool is_run(const std::string& directory);

// The files of a run, which may be running. Throws ConfigError where the directory is no run.
struct RunFiles {
  explicit RunFiles(const std::string& directory);

  std::string directory;
  std::string config_text;
  YamlNode config;
  std::vector<MetricsRow> rows;
  // Of report.json; of an older version's run, which has none, the metrics that every run declares.
  Report report;
  int64_t planned_steps = 0;  // 0: unknown
};

// Differences between the configs that are not of the runs' places: "KEY: A -> B".
std::vector<std::string> config_differences(const RunFiles& a, const RunFiles& b);

// How a run goes back to another one.
struct Descent {
  // The step after which it has steps of its own: the latest one at which it, or a fork between the
  // two, began. Nullopt: it is no fork of the other, or nobody knows.
  std::optional<int64_t> step = {};
  std::string unknown = {};  // why nobody knows
};
// Whether `b` is a fork of `a`, a fork of a fork of it, and so on. Runs between the two are found
// where their forks noted them, or, once moved, among `runs`.
Descent descent_of(const std::string& a, const std::string& b,
                   const std::vector<std::string>& runs);

// Whether a metric is a time, a speed or an amount of memory: it says nothing of results.
bool is_of_machine(const std::vector<MetricInfo>& metrics, const std::string& name);

}  // namespace temper::cli
