// report.html: one self-contained page about a run, with curves as inline SVG. It loads nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "temper/metrics/metric_info.h"
#include "temper/metrics/row.h"

namespace temper {

struct Report {
  struct Table {
    std::string title;
    std::vector<std::string> header;
    std::vector<std::vector<std::string>> rows;
    // The column, if any, whose cells are small pictures: data: URIs with spaces between them.
    std::optional<size_t> pictures = {};
  };

  std::string title;                                         // "sft of Qwen3-0.6B"
  std::vector<MetricsRow> rows;                              // training and evaluation rows
  std::vector<std::pair<std::string, std::string>> summary;  // further names and values
  std::string config;                                        // the resolved config's text
  std::vector<Table> tables = {};                            // samples, where the time went, ...
  std::vector<MetricInfo> metrics = {};  // gives the charts; a metric without one gets its own
  int64_t final_step = -1;  // the step whose weights the run kept; -1: those of the last one
};

// Everything that comes from outside is escaped.
std::string render_report(const Report& report);

// A run of a page that shows several of them.
struct ComparedRun {
  std::string name;  // different from those of the others
  std::vector<MetricsRow> rows;
};

// A page with a chart for each metric and a curve for each run, and a table of last values. Metrics
// come in the order of `metrics`, then as the rows have them.
std::string render_comparison(const std::string& title, const std::vector<ComparedRun>& runs,
                              const std::vector<MetricInfo>& metrics,
                              const std::vector<Report::Table>& tables);

// OUTPUT_DIR/report.json: what a report needs that is in none of the run's other files, so that it
// can be made anew: all but the rows, and the number of planned steps.
std::string report_record(const Report& report, int64_t planned_steps);
struct ReportRecord {
  Report report;
  int64_t planned_steps = 0;  // 0: unknown
};
// Of such a file's text. Throws DataError that begins with `where`.
ReportRecord read_report_record(const std::string& text, const std::string& where);

}  // namespace temper
