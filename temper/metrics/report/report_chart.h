// Curves over the steps as inline SVG, with the values under the pointer.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "temper/metrics/row.h"

namespace temper {

struct ChartSpec {
  std::string title;
  std::vector<std::string> metrics;  // names of the metrics, a curve for each
  std::string unit;                  // unit of the axis and the values, see MetricInfo::unit
};

// A <figure>; empty where no metric has two finite values.
std::string render_chart(const ChartSpec& spec, const std::vector<MetricsRow>& rows);

// The style and the script that a page with charts has once.
extern const char* const kChartStyle;
extern const char* const kChartScript;

// Text for HTML content and quoted attributes.
std::string escape_html(std::string_view text);

}  // namespace temper
