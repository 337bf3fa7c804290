// report.html: one self-contained page about a run, with curves as inline SVG.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "temper/metrics/row.h"

namespace temper {

struct Report {
  struct Table {
    std::string title;
    std::vector<std::string> header;
    std::vector<std::vector<std::string>> rows;
  };
  struct Accuracy {
    double before = 0, after = 0;  // shares of 1
    int64_t examples = 0;          // 0: unknown
    std::string task;
  };

  std::string title;             // "sft of Qwen3-0.6B"
  std::vector<MetricsRow> rows;  // training and evaluation rows
  std::string config;            // the resolved config's text
  std::vector<std::pair<std::string, std::string>>
      summary;                // further lines of the summary, e.g. {"device", "cpu"}
  std::vector<Table> tables;  // samples, where the time went, ...
  std::optional<Accuracy> accuracy;
};

// The page. Everything that comes from outside is escaped; the page loads nothing.
std::string render_report(const Report& report);

// Writes OUTPUT_DIR/report.html. Throws RunError.
void write_report(const std::string& output_dir, const Report& report);

}  // namespace temper
