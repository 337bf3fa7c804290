#include "temper/metrics/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "temper/base/error.h"

namespace temper {
namespace {

constexpr double kWidth = 420, kHeight = 160, kMargin = 8;

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') out += "&lt;";
    else if (c == '>') out += "&gt;";
    else if (c == '&') out += "&amp;";
    else if (c == '"') out += "&quot;";
    else out += c;
  }
  return out;
}

std::string brief(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.4g", value);
  return buffer;
}

// One curve over the steps; nothing where the metric has no two finite values.
std::string curve(const std::vector<MetricsRow>& rows, const char* name) {
  std::vector<std::pair<double, double>> points;
  for (const MetricsRow& row : rows)
    if (const auto value = row.number(name); value && std::isfinite(*value)) points.emplace_back(static_cast<double>(row.step()), *value);
  if (points.size() < 2) return "";
  double low = points[0].second, high = low;
  for (const auto& [step, value] : points) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  const double first = points.front().first, last = points.back().first;
  const double span = high > low ? high - low : 1, steps = last > first ? last - first : 1;
  std::string line;
  for (const auto& [step, value] : points)
    line += brief(kMargin + (step - first) / steps * (kWidth - 2 * kMargin)) + "," +
            brief(kHeight - kMargin - (value - low) / span * (kHeight - 2 * kMargin)) + " ";
  return str("<figure><figcaption><b>", escaped(name), "</b> last ", brief(points.back().second), ", lowest ", brief(low), ", highest ", brief(high),
             "</figcaption><svg viewBox=\"0 0 ", kWidth, " ", kHeight, "\" role=\"img\"><polyline points=\"", line, "\"/></svg><small>step ", first,
             " to ", last, "</small></figure>");
}

constexpr const char* kStyle =
    "body{font:15px/1.5 system-ui,sans-serif;max-width:960px;margin:2em auto;padding:0 1em;color:#222;background:#fff}"
    "figure{display:inline-block;width:46%;min-width:300px;margin:1%}svg{width:100%;background:#f4f6f8;border-radius:6px}"
    "polyline{fill:none;stroke:#2563eb;stroke-width:1.6}table{border-collapse:collapse}td{padding:.2em 1em .2em 0}"
    "pre{background:#f4f6f8;padding:1em;border-radius:6px;overflow:auto}"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#161616}svg,pre{background:#222}polyline{stroke:#7aa7ff}}";

}  // namespace

std::string render_report(const Report& report) {
  std::string page = str("<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>", escaped(report.title), "</title><style>", kStyle,
                         "</style><h1>", escaped(report.title), "</h1><table>");
  for (const auto& [name, value] : report.summary) page += "<tr><td>" + escaped(name) + "</td><td><b>" + escaped(value) + "</b></td></tr>";
  page += "</table>";
  for (const char* name : {"loss", "eval/loss", "grad_norm", "learning_rate", "tokens_per_second", "peak_memory_bytes"}) page += curve(report.rows, name);
  return page + "<h2>Config</h2><pre>" + escaped(report.config) + "</pre></html>\n";
}

}  // namespace temper
