// The metrics of a run: its sinks, its console, and the report that is made from metrics.jsonl.
#pragma once

#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "temper/base/clock.h"
#include "temper/metrics/report/report.h"
#include "temper/metrics/sink.h"
#include "temper/train/config.h"
#include "temper/train/run/checkpoint/checkpoint.h"

namespace temper::train {

// Whether the run keeps rows in metrics.jsonl.
bool keeps_rows(const RunConfig& config);
// Reads those up to a step as RunMetrics::resume() will. Throws where they cannot be read.
void check_kept_rows(const RunConfig& config, int64_t step);

// Files are in the config's output_dir, as it is when they are written. Ranks that do not write
// call no open(), and log(), warn() and note() alone of the others: they do nothing there.
class RunMetrics {
 public:
  // The config outlives it.
  explicit RunMetrics(RunConfig& config) : config_(config) {}

  // Opens the sinks for a run of so many steps. Throws as Metrics does.
  void open(int64_t steps, std::vector<MetricInfo> infos, std::ostream& console, bool terminal);
  void log(const MetricsRow& row);
  void warn(const std::string& message) const;
  void note(const std::string& text) const;

  int64_t rows() const { return rows_; }  // of steps, in metrics.jsonl
  // Cuts all sinks back to the checkpoint's step (null: a fresh run), and gives them the rows that
  // stay. Warns where their number is not that which the checkpoint, `own`: one of this directory,
  // has recorded.
  void resume(const Checkpoint* resumed, bool own);

  // report.json of a run that begins.
  void write_begun_report() const;
  // Closes the sinks.
  void finish() { sinks_->finish(); }
  // report.json and report.html of a run that has ended. `final_step`: Report's.
  void write_report(std::vector<std::pair<std::string, std::string>> summary,
                    std::vector<Report::Table> tables, int64_t final_step) const;

 private:
  void count_rows(const Checkpoint* resumed, bool own);
  std::string title() const;
  std::string path() const;

  RunConfig& config_;
  std::unique_ptr<Metrics> sinks_;
  std::vector<MetricInfo> infos_;
  int64_t steps_ = 0;
  int64_t rows_ = 0;  // of steps
  bool resumed_ = false;
  const double begun_ = steady_seconds();
};

}  // namespace temper::train
