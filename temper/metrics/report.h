// report.html: one self-contained page about a run, with curves as inline SVG. It loads nothing.
#pragma once

#include <cstdint>
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
  };

  std::string title;                                         // "sft of Qwen3-0.6B"
  std::vector<MetricsRow> rows;                              // training and evaluation rows
  std::vector<std::pair<std::string, std::string>> summary;  // further names and values
  std::string config;                                        // the resolved config's text
  std::vector<Table> tables = {};                            // samples, where the time went, ...
  std::vector<MetricInfo> metrics = {};  // gives the charts; a metric without one gets its own
};

// Everything that comes from outside is escaped.
std::string render_report(const Report& report);

}  // namespace temper
