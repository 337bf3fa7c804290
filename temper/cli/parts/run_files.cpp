#include "temper/cli/parts/run_files.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

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

namespace {
namespace fs = std::filesystem;

// What a fork noted of the run that it goes on from.
struct Origin {
  std::string run;
  int64_t step = 0;
};

std::optional<Origin> origin_of(const std::string& fork) {
  const std::string path = fork + "/fork/origin.json";
  if (!fs::exists(path)) return {};
  const Json noted = read_json_file(path);
  const Json step = noted.value("step", Json()), run = noted.value("run", Json());
  if (!step.is_number_integer() || !run.is_string()) return {};
  return Origin{run.get<std::string>(), step.get<int64_t>()};
}

// By what the fork noted, and by the chain of the manifests, which a run that was moved has too.
bool goes_on_from(const std::string& run, const std::string& fork, const Origin& origin) {
  std::error_code none;
  if (fs::equivalent(run, origin.run, none)) return true;
  try {
    const std::vector<train::ManifestLine> of_run = train::read_manifest(run + "/manifest.jsonl"),
                                           of_fork = train::read_manifest(fork + "/manifest.jsonl");
    for (const train::ManifestLine& line : of_run)
      if (line.is_step() && line.step() == origin.step && !of_fork.empty() &&
          of_fork[0].value.value("previous", Json()) == sha256_hex(line.text))
        return true;
  } catch (const train::BrokenManifest&) {  // it shows nothing
  }
  return false;
}

// The run that a fork goes on from, where it noted it or among `runs`; empty: it is at neither.
std::string parent_of(const std::string& fork, const Origin& origin,
                      const std::vector<std::string>& runs) {
  if (is_run(origin.run)) return origin.run;
  for (const std::string& run : runs)
    if (run != fork && goes_on_from(run, fork, origin)) return run;
  return {};
}

}  // namespace

Descent descent_of(const std::string& a, const std::string& b,
                   const std::vector<std::string>& runs) {
  int64_t latest = 0;
  std::string fork = b;
  std::set<fs::path> seen;
  while (seen.insert(fs::weakly_canonical(fork)).second) {
    const std::optional<Origin> origin = origin_of(fork);
    if (!origin) return {};
    latest = std::max(latest, origin->step);
    if (goes_on_from(a, fork, *origin)) return {.step = latest};
    const std::string parent = parent_of(fork, *origin, runs);
    if (parent.empty())
      return {.unknown = str(fork, " goes on from ", origin->run, ", which is no longer there")};
    fork = parent;
  }
  return {};
}

bool is_of_machine(const std::vector<MetricInfo>& metrics, const std::string& name) {
  const MetricInfo* info = find_metric(metrics, name);
  if (!info) info = find_evaluated_metric(metrics, name);
  return (info && (info->unit == "s" || info->unit == "bytes" || info->unit.ends_with("/s"))) ||
         name.ends_with("_seconds") || name.ends_with("_per_second");
}

}  // namespace temper::cli
