#include "temper/train/run/run_metrics.h"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "temper/base/config/yaml_json.h"
#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/base/json.h"
#include "temper/base/memory.h"
#include "temper/base/version.h"
#include "temper/dist/environment.h"
#include "temper/metrics/format.h"

namespace temper::train {
namespace {

// "2026-11-26 23:19 UTC"
std::string now_text() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &utc);
  return text;
}

std::string rows_file(const RunConfig& config) { return config.output_dir + "/metrics.jsonl"; }

}  // namespace

bool keeps_rows(const RunConfig& config) {
  const std::vector<std::string>& sinks = config.metrics.sinks;
  return std::find(sinks.begin(), sinks.end(), "jsonl") != sinks.end();
}

void check_kept_rows(const RunConfig& config, int64_t step) {
  const std::string path = rows_file(config);
  if (keeps_rows(config) && std::filesystem::exists(path))
    metrics_up_to(step, read_file(path), path);
}

std::string RunMetrics::path() const { return rows_file(config_); }

void RunMetrics::open(int64_t steps, std::vector<MetricInfo> infos, std::ostream& console,
                      bool terminal) {
  steps_ = steps;
  infos_ = std::move(infos);
  SinkOptions options{config_.output_dir, steps, &console, terminal};
  options.log_every = config_.metrics.log_every;
  options.metrics = infos_;
  const Json config = json_of(parse_yaml(dump_run_config(config_), "config"));
  for (const auto& [name, value] : config.items())
    options.config.emplace_back(name, dump_json(value));
  sinks_ =
      std::make_unique<Metrics>(config_.metrics.sinks, options, config_.where("metrics.sinks"));
}

void RunMetrics::log(const MetricsRow& row) {
  if (sinks_) sinks_->log(row);
  if (!row.is_eval()) ++rows_;
}
void RunMetrics::warn(const std::string& message) const {
  if (sinks_) sinks_->warn(message);
}
void RunMetrics::note(const std::string& text) const {
  if (sinks_) sinks_->note(text);
}

void RunMetrics::resume(const Checkpoint* resumed, bool own) {
  sinks_->truncate_after(resumed ? resumed->step : -1);
  if (resumed && resumed->values.value(Checkpoints::kEvaluated, Json()) != resumed->step)
    sinks_->remove_evaluation(resumed->step);
  if (keeps_rows(config_)) count_rows(resumed, own);
  resumed_ = resumed != nullptr;
}

void RunMetrics::count_rows(const Checkpoint* resumed, bool own) {
  std::set<int64_t> steps;
  rows_ = 0;
  for (const MetricsRow& row : read_metrics_file(path())) {
    sinks_->restore(row);
    if (row.is_eval()) continue;
    ++rows_;
    steps.insert(row.step());
  }
  if (!resumed || !own) return;
  const Json written = resumed->values.value(Checkpoints::kMetricsRows, Json());
  if (!written.is_number_integer() || written == rows_) return;
  int64_t missing = 1;
  while (missing < resumed->step && steps.contains(missing)) ++missing;
  const bool cut = written.get<int64_t>() > rows_;
  warn(str(path(), " has rows of ", rows_, " steps up to step ", resumed->step,
           ", and the run wrote ", dump_json(written), ": it was cut or edited",
           cut ? str(" (there is no row of step ", missing, ")") : "",
           "; curves and report show what is there"));
}

std::string RunMetrics::title() const {
  return config_.verb.value_or("run") + " of " + config_.model.path;
}

void RunMetrics::write_begun_report() const {
  Report begun{title(), {}, {}, dump_run_config(config_)};
  begun.metrics = infos_;
  write_file_atomic(config_.output_dir + "/report.json", report_record(begun, steps_));
}

void RunMetrics::write_report(std::vector<std::pair<std::string, std::string>> summary,
                              std::vector<Report::Table> tables, int64_t final_step) const {
  Report page{title(), read_metrics_file(path()), std::move(summary), dump_run_config(config_),
              std::move(tables)};
  page.metrics = infos_;
  page.final_step = final_step;
  if (page.rows.empty())  // else the page has it from them
    page.summary.emplace_back("peak memory",
                              format_bytes(static_cast<double>(peak_memory_bytes())));
  page.summary.emplace_back("ended", now_text());
  page.summary.emplace_back(resumed_ ? "wall time since it was resumed" : "wall time",
                            format_duration(steady_seconds() - begun_));
  page.summary.emplace_back("host", dist::host_name());
  page.summary.emplace_back("Temper", kVersion);
  write_file_atomic(config_.output_dir + "/report.json", report_record(page, steps_));
  write_file_atomic(config_.output_dir + "/report.html", render_report(page));
}

}  // namespace temper::train
