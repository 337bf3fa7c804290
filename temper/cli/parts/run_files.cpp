#include "temper/cli/parts/run_files.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "temper/base/config/config.h"
#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/base/sha256.h"
#include "temper/train/manifest/manifest.h"
#include "temper/train/trainer.h"

namespace temper::cli {

bool is_run(const std::string& directory) {
  return std::filesystem::exists(directory + "/config.yaml");
}

RunFiles::RunFiles(const std::string& run) : directory(run) {
  check<ConfigError>(is_run(run), run, ": no directory of a run: it has no config.yaml");
  const std::string file = run + "/config.yaml", record = run + "/report.json";
  config_text = read_file(file, size_t{1} << 20);
  config = parse_yaml(config_text, file);
  rows = read_metrics_file(run + "/metrics.jsonl");
  if (std::filesystem::exists(record)) {
    ReportRecord read = read_report_record(read_file(record, size_t{1} << 30), record);
    report = std::move(read.report);
    planned_steps = read.planned_steps;
  } else {
    report.title = run;
    report.metrics = train::trainer_metrics();
  }
}

std::vector<std::string> config_differences(const RunFiles& a, const RunFiles& b) {
  std::vector<std::string> differences = changed_keys(a.config, b.config);
  std::erase_if(differences, [](const std::string& difference) {
    return difference.starts_with("output_dir:") || difference.starts_with("resume:") ||
           difference.starts_with("defaulted");
  });
  return differences;
}

// By the chain of the manifests, and, where a run has none, by what the fork noted.
std::optional<int64_t> fork_step(const std::string& a, const std::string& b) {
  namespace fs = std::filesystem;
  const std::string origin = b + "/fork/origin.json";
  if (!fs::exists(origin)) return {};
  const Json noted = read_json_file(origin);
  const Json step = noted.value("step", Json()), run = noted.value("run", Json());
  if (!step.is_number_integer() || !run.is_string()) return {};
  std::error_code none;
  if (fs::equivalent(a, run.get<std::string>(), none)) return step.get<int64_t>();
  const std::vector<train::ManifestLine> of_a = train::read_manifest(a + "/manifest.jsonl"),
                                         of_b = train::read_manifest(b + "/manifest.jsonl");
  for (const train::ManifestLine& line : of_a)
    if (line.is_step() && line.step() == step && !of_b.empty() &&
        of_b[0].value["previous"] == sha256_hex(line.text))
      return line.step();
  return {};
}

bool is_of_machine(const std::vector<MetricInfo>& metrics, const std::string& name) {
  const MetricInfo* info = find_metric(metrics, name);
  if (!info) info = find_evaluated_metric(metrics, name);
  return (info && (info->unit == "s" || info->unit == "bytes" || info->unit.ends_with("/s"))) ||
         name.ends_with("_seconds") || name.ends_with("_per_second");
}

}  // namespace temper::cli
