#include "temper/metrics/report/report.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>

#include "temper/base/ascii.h"
#include "temper/base/error.h"
#include "temper/metrics/format.h"
#include "temper/metrics/report/report_chart.h"

namespace temper {
namespace {

// The chart of a metric that nobody declared: "a" of "a/b", or its own name; an evaluation's stands
// beside what it measures.
std::string_view undeclared_chart(std::string_view name) {
  if (name.starts_with("eval/")) name.remove_prefix(5);
  return name.substr(0, name.rfind('/'));
}

// A chart for every group of the declared metrics, in the order of their declarations, an
// evaluation's metric beside the one that it measures; then those of the others.
std::vector<ChartSpec> charts_of(const std::vector<MetricInfo>& metrics,
                                 const std::vector<MetricsRow>& rows) {
  std::vector<std::string> names;  // as they come up
  std::set<std::string_view> seen;
  for (const MetricsRow& row : rows)
    for (const auto& [name, _] : row.values())
      if (name != "step" && seen.insert(name).second) names.push_back(name);

  std::vector<ChartSpec> charts;
  const auto add = [&](std::string_view title, std::string_view unit, const std::string& name) {
    auto chart = std::find_if(charts.begin(), charts.end(), [&](const ChartSpec& c) {
      return c.title == title && c.unit == unit;
    });
    if (chart == charts.end())
      chart = charts.insert(charts.end(), {std::string(title), {}, std::string(unit)});
    chart->metrics.push_back(name);
  };
  for (const MetricInfo& info : metrics) {
    if (info.group.empty()) continue;
    for (const std::string& name : names)
      if (find_metric(metrics, name) == &info) add(info.group, info.unit, name);
    for (const std::string& name : names)
      if (find_evaluated_metric(metrics, name) == &info) add(info.group, info.unit, name);
  }
  for (const std::string& name : names)
    if (!find_metric(metrics, name) && !find_evaluated_metric(metrics, name))
      add(undeclared_chart(name), "", name);
  return charts;
}

// The finite values of a metric, in order.
std::vector<double> values_of(const std::vector<MetricsRow>& rows, const std::string& metric) {
  std::vector<double> values;
  for (const MetricsRow& row : rows)
    if (const auto value = row.number(metric); value && std::isfinite(*value))
      values.push_back(*value);
  return values;
}

double sum(const std::vector<double>& values) {
  double total = 0;
  for (const double value : values) total += value;
  return total;
}

// Takes out of the charts what a curve would say nothing about: metrics that never change, and
// those that equal an earlier one at every step. Returns them as a table.
Report::Table take_flat(std::vector<ChartSpec>& charts, const std::vector<MetricInfo>& metrics,
                        const std::vector<MetricsRow>& rows) {
  Report::Table flat{"Without a curve", {"metric", "value"}, {}};
  std::vector<std::string> drawn;
  const auto same_everywhere = [&](const std::string& a, const std::string& b) {
    return std::all_of(rows.begin(), rows.end(),
                       [&](const MetricsRow& row) { return row.number(a) == row.number(b); });
  };
  const auto is_flat = [&](const std::string& name) {
    const std::vector<double> values = values_of(rows, name);
    const auto logged = std::count_if(rows.begin(), rows.end(), [&](const MetricsRow& row) {
      return row.number(name).has_value();
    });
    if (logged == 0) return true;
    if (values.empty()) {
      flat.rows.push_back({name, "never a finite number"});
      return true;
    }
    const bool finite = std::ssize(values) == logged;
    const bool equal =
        std::all_of(values.begin(), values.end(), [&](double v) { return v == values[0]; });
    if (values.size() < 2 || (finite && equal)) {
      const MetricInfo* info = find_metric(metrics, name);
      if (!info) info = find_evaluated_metric(metrics, name);
      flat.rows.push_back({name, format_value(values[0], info ? info->unit : "") +
                                     (finite ? "" : " at one step, else not finite")});
      return true;
    }
    for (const std::string& other : drawn)
      if (same_everywhere(name, other)) {
        flat.rows.push_back({name, "as " + other});
        return true;
      }
    drawn.push_back(name);
    return false;
  };
  for (ChartSpec& chart : charts) {
    const bool several = chart.metrics.size() > 1;
    std::erase_if(chart.metrics, is_flat);
    if (several && chart.metrics.size() == 1) chart.title += ": " + chart.metrics[0];
  }
  std::erase_if(charts, [](const ChartSpec& chart) { return chart.metrics.empty(); });
  return flat;
}

// The metric that the console shows first, and its evaluations: the run's result in a number.
std::vector<std::string> headline(const std::vector<MetricInfo>& metrics,
                                  const std::vector<MetricsRow>& rows) {
  for (const MetricInfo& info : metrics) {
    if (!info.console) continue;
    std::vector<std::string> names;
    for (const std::string& name : {info.name, "eval/" + info.name})
      if (!values_of(rows, name).empty()) names.push_back(name);
    if (!names.empty()) return names;
  }
  return {};
}

// The rows of a run up to the step whose weights it kept.
std::vector<MetricsRow> kept_rows(const Report& report) {
  std::vector<MetricsRow> rows = report.rows;
  if (report.final_step >= 0)
    std::erase_if(rows, [&](const MetricsRow& row) { return row.step() > report.final_step; });
  return rows;
}

std::string tiles(const Report& report) {
  const std::vector<MetricInfo>& metrics = report.metrics;
  const std::vector<MetricsRow>&rows = report.rows, kept = kept_rows(report);
  std::string out;
  const auto tile = [&](const std::string& name, const std::string& value) {
    out += "<div class=tile><span>" + escape_html(name) + "</span><b>" + escape_html(value) +
           "</b></div>";
  };
  for (const std::string& name : headline(metrics, kept)) {
    const MetricInfo* info = find_metric(metrics, name);
    if (!info) info = find_evaluated_metric(metrics, name);
    tile("final " + name, format_value(values_of(kept, name).back(), info ? info->unit : ""));
  }
  // Names that every row of a run has, see MetricsRow.
  const auto tokens = values_of(rows, "tokens"), seconds = values_of(rows, "step_seconds");
  const auto memory = values_of(rows, "peak_memory_bytes");
  if (!tokens.empty()) tile("tokens", format_count(sum(tokens)));
  if (!seconds.empty()) tile("time in steps", format_duration(sum(seconds)));
  if (!tokens.empty() && sum(seconds) > 0)
    tile("tokens per second", format_count(sum(tokens) / sum(seconds)));
  if (!memory.empty())
    tile("peak memory", format_bytes(*std::max_element(memory.begin(), memory.end())));
  return out.empty() ? out : "<div class=tiles>" + out + "</div>\n";
}

// Text of a table's cell; behind its first characters a long one is folded.
std::string folded(const std::string& text) {
  constexpr size_t kShown = 240, kFolded = 400;
  if (text.size() <= kFolded) return escape_html(text);
  size_t shown = kShown;
  while (shown > 0 && (text[shown] & 0xc0) == 0x80) --shown;  // not within a character of UTF-8
  return "<details><summary>" + escape_html(text.substr(0, shown)) + " ...</summary>" +
         escape_html(text.substr(shown)) + "</details>";
}

// The cell's pictures; what is none is text.
std::string pictures(const std::string& cell) {
  constexpr std::string_view kBegin = "data:image/png;base64,";
  const std::string digits = std::string(kBase64Digits) + "=";
  std::string out;
  std::istringstream uris(cell);
  for (std::string uri; uris >> uri;) {
    const bool shown = uri.starts_with(kBegin) &&
                       uri.find_first_not_of(digits, kBegin.size()) == std::string::npos;
    out += shown ? "<img alt=\"\" src=\"" + uri + "\"> " : escape_html(uri) + " ";
  }
  return out;
}

std::string table(const Report::Table& table) {
  std::string out =
      "<h2>" + escape_html(table.title) + "</h2><div class=\"card scroll\"><table><thead><tr>";
  for (const std::string& name : table.header) out += "<th>" + escape_html(name) + "</th>";
  out += "</tr></thead><tbody>";
  for (const std::vector<std::string>& row : table.rows) {
    out += "<tr>";
    for (size_t i = 0; i < row.size(); ++i)
      out += "<td>" + (table.pictures == i ? pictures(row[i]) : folded(row[i])) + "</td>";
    out += "</tr>";
  }
  return out + "</tbody></table></div>\n";
}

std::string summary_table(const std::vector<std::pair<std::string, std::string>>& summary) {
  std::string out;
  for (const auto& [name, value] : summary)
    out += "<div><dt>" + escape_html(name) + "</dt><dd>" + escape_html(value) + "</dd></div>";
  return out.empty() ? out : "<dl class=card>" + out + "</dl>\n";
}

constexpr const char* kStyle = R"css(
:root { color-scheme: light dark; --page: #f7f8fa; --card: #fff; --ink: #1b1f26; --faint: #667085; --rule: #e3e6eb; }
@media (prefers-color-scheme: dark) {
  :root { --page: #111418; --card: #1a1e24; --ink: #e6e8eb; --faint: #98a2b3; --rule: #2c323b; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 32px 20px 64px; max-width: 1080px; font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); }
h1 { font-size: 24px; margin: 0 0 20px; overflow-wrap: anywhere; }
h2 { font-size: 17px; margin: 32px 0 12px; }
.card, .tile { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; padding: 14px 16px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(130px, 1fr)); gap: 12px; margin-bottom: 12px; }
.tile span { display: block; font-size: 13px; color: var(--faint); }
.tile b { font-size: 20px; font-variant-numeric: tabular-nums; }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(220px, 1fr)); gap: 4px 28px; margin: 0; }
dl div { display: flex; justify-content: space-between; gap: 12px; }
dt { color: var(--faint); }
dd { margin: 0; font-variant-numeric: tabular-nums; overflow-wrap: break-word; min-width: 0; text-align: right; }
.scroll { overflow-x: auto; padding: 0; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th, td { text-align: left; vertical-align: top; padding: 8px 14px; border-bottom: 1px solid var(--rule); white-space: pre-wrap; overflow-wrap: anywhere; }
th { color: var(--faint); font-weight: 600; }
tr:last-child td { border-bottom: 0; }
summary { cursor: pointer; }
pre { margin: 0; overflow: auto; font: 13px/1.5 ui-monospace, monospace; }
)css";

}  // namespace

static std::string beginning_of_page(const std::string& title) {
  return str(
      "<!doctype html>\n<html lang=en>\n<meta charset=utf-8>\n<meta name=viewport "
      "content=\"width=device-width\">\n<title>",
      escape_html(title), "</title>\n<style>", kStyle, kChartStyle, "</style>\n<h1>",
      escape_html(title), "</h1>\n");
}

std::string render_report(const Report& report) {
  std::string page =
      beginning_of_page(report.title) + tiles(report) + summary_table(report.summary);
  std::vector<ChartSpec> charts = charts_of(report.metrics, report.rows);
  const Report::Table flat = take_flat(charts, report.metrics, report.rows);
  std::string curves;
  for (const ChartSpec& spec : charts) curves += render_chart(spec, report.rows);
  if (!curves.empty()) page += "<h2>Curves</h2><div class=charts>\n" + curves + "</div>\n";
  if (!flat.rows.empty()) page += table(flat);
  for (const Report::Table& rows : report.tables) page += table(rows);
  if (!report.config.empty())
    page += "<h2>Config</h2><div class=card><pre>" + escape_html(report.config) + "</pre></div>\n";
  return page + "<script>" + kChartScript + "</script>\n</html>\n";
}

// The names of all rows' metrics, declared ones first.
static std::vector<std::pair<std::string, std::string>> names_and_units(
    const std::vector<ComparedRun>& runs, const std::vector<MetricInfo>& metrics) {
  std::vector<std::pair<std::string, const MetricInfo*>> names;
  std::set<std::string> seen{"step"};
  for (const ComparedRun& run : runs)
    for (const MetricsRow& row : run.rows)
      for (const auto& [name, _] : row.values())
        if (seen.insert(name).second) {
          const MetricInfo* info = find_metric(metrics, name);
          names.emplace_back(name, info ? info : find_evaluated_metric(metrics, name));
        }
  const auto place = [&](const MetricInfo* info) {
    return info ? info - metrics.data() : std::ssize(metrics);
  };
  std::stable_sort(names.begin(), names.end(),
                   [&](const auto& a, const auto& b) { return place(a.second) < place(b.second); });
  std::vector<std::pair<std::string, std::string>> out;
  for (const auto& [name, info] : names) out.emplace_back(name, info ? info->unit : "");
  return out;
}

std::string render_comparison(const std::string& title, const std::vector<ComparedRun>& runs,
                              const std::vector<MetricInfo>& metrics,
                              const std::vector<Report::Table>& tables) {
  std::string page = beginning_of_page(title), curves;
  Report::Table last{"Last values", {"metric"}, {}};
  for (const ComparedRun& run : runs) last.header.push_back(run.name);
  for (const auto& [name, unit] : names_and_units(runs, metrics)) {
    ChartSpec spec{name, {}, unit};
    std::vector<MetricsRow> rows;
    std::vector<std::string> cells{name};
    for (const ComparedRun& run : runs) {
      spec.metrics.push_back(run.name);
      for (const MetricsRow& row : run.rows)
        if (const auto value = row.number(name)) {
          rows.emplace_back(row.step());
          rows.back().set(run.name, *value);
        }
      const std::vector<double> values = values_of(run.rows, name);
      cells.push_back(values.empty() ? "" : format_value(values.back(), unit));
    }
    curves += render_chart(spec, rows);
    last.rows.push_back(std::move(cells));
  }
  for (const Report::Table& rows : tables) page += table(rows);
  page += table(last);
  if (!curves.empty()) page += "<h2>Curves</h2><div class=charts>\n" + curves + "</div>\n";
  return page + "<script>" + kChartScript + "</script>\n</html>\n";
}

}  // namespace temper
