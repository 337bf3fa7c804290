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

// The step after which `b` goes on from `a` with steps of its own, where it is a fork of it.
std::optional<int64_t> fork_step(const std::string& a, const std::string& b);

// Whether a metric is a time, a speed or an amount of memory: it says nothing of results.
bool is_of_machine(const std::vector<MetricInfo>& metrics, const std::string& name);

}  // namespace temper::cli
