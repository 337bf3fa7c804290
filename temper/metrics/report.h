// report.html: one self-contained page about a run, with curves as inline SVG. It loads nothing.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "temper/metrics/row.h"

namespace temper {

struct Report {
  std::string title;
  std::vector<MetricsRow> rows;                              // training and evaluation rows
  std::vector<std::pair<std::string, std::string>> summary;  // names and values
  std::string config;                                        // the resolved config's text
};

// Everything that comes from outside is escaped.
std::string render_report(const Report& report);

}  // namespace temper
