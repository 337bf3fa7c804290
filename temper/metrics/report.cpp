#include "temper/metrics/report.h"

#include <algorithm>
#include <cmath>

#include "temper/base/error.h"
#include "temper/metrics/format.h"
#include "temper/metrics/report_chart.h"

namespace temper {
namespace {

std::string percent(double share) { return format_fixed(100 * share, 1) + " %"; }

const std::vector<ChartSpec>& charts() {
  static const std::vector<ChartSpec> charts = {
      {"Loss", {"loss", "eval/loss"}, format_brief},
      {"Reward", {"reward_mean", "eval/reward_mean"}, format_brief},
      {"KL to the reference model", {"kl"}, format_brief},
      {"Entropy", {"entropy"}, format_brief},
      {"Completion length", {"completion_length_mean"}, format_brief},
      {"Learning rate", {"learning_rate"}, format_brief},
      {"Gradient norm", {"grad_norm"}, format_brief},
      {"Tokens per second", {"tokens_per_second"}, format_count},
      {"Seconds", {"rollout_seconds", "reward_seconds", "train_seconds"}, format_duration},
      {"Peak memory", {"peak_memory_bytes"}, format_bytes},
  };
  return charts;
}

// The finite values of a metric, in order.
std::vector<double> values_of(const std::vector<MetricsRow>& rows, const char* metric) {
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

std::string tiles(const std::vector<MetricsRow>& rows) {
  std::string out;
  const auto tile = [&](const char* name, const std::string& value) {
    out += str("<div class=tile><span>", name, "</span><b>", escape_html(value), "</b></div>");
  };
  const auto loss = values_of(rows, "loss"), eval = values_of(rows, "eval/loss"),
             reward = values_of(rows, "reward_mean");
  const auto tokens = values_of(rows, "tokens"), seconds = values_of(rows, "step_seconds");
  const auto memory = values_of(rows, "peak_memory_bytes");
  if (!loss.empty()) tile("final loss", format_brief(loss.back()));
  if (!eval.empty())
    tile("best eval loss", format_brief(*std::min_element(eval.begin(), eval.end())));
  if (!reward.empty()) tile("final reward", format_brief(reward.back()));
  if (!tokens.empty()) tile("tokens", format_count(sum(tokens)));
  if (!seconds.empty()) tile("time in steps", format_duration(sum(seconds)));
  if (!tokens.empty() && sum(seconds) > 0)
    tile("tokens per second", format_count(sum(tokens) / sum(seconds)));
  if (!memory.empty())
    tile("peak memory", format_bytes(*std::max_element(memory.begin(), memory.end())));
  return out.empty() ? out : "<div class=tiles>" + out + "</div>\n";
}

std::string accuracy_block(const Report::Accuracy& accuracy) {
  const auto bar = [](const char* name, double share, const char* kind) {
    const double width = 100 * std::clamp(std::isfinite(share) ? share : 0.0, 0.0, 1.0);
    return str("<div class=bar><span>", name, "</span><i><u class=", kind,
               " style=\"width:", format_fixed(width, 2), "%\"></u></i><b>", percent(share),
               "</b></div>");
  };
  return str("<h2>Accuracy</h2><div class=card><p>", escape_html(accuracy.task),
             accuracy.examples > 0
                 ? ", " + format_count(static_cast<double>(accuracy.examples)) + " examples"
                 : "",
             "</p>", bar("before", accuracy.before, "s1"), bar("after", accuracy.after, "s0"),
             "</div>\n");
}

std::string table(const Report::Table& table) {
  std::string out =
      "<h2>" + escape_html(table.title) + "</h2><div class=\"card scroll\"><table><thead><tr>";
  for (const std::string& name : table.header) out += "<th>" + escape_html(name) + "</th>";
  out += "</tr></thead><tbody>";
  for (const std::vector<std::string>& row : table.rows) {
    out += "<tr>";
    for (const std::string& text : row) out += "<td>" + escape_html(text) + "</td>";
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
:root { color-scheme: light dark; --page: #f7f8fa; --card: #fff; --ink: #1b1f26; --faint: #667085; --rule: #e3e6eb; --s0: #2563eb; --s1: #e07b1f; }
@media (prefers-color-scheme: dark) {
  :root { --page: #111418; --card: #1a1e24; --ink: #e6e8eb; --faint: #98a2b3; --rule: #2c323b; --s0: #78a6ff; --s1: #f0a35a; }
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
.card p { margin: 0 0 8px; }
.bar { display: grid; grid-template-columns: 60px 1fr 70px; gap: 12px; align-items: center; padding: 3px 0; }
.bar i { height: 14px; border-radius: 7px; background: var(--page); overflow: hidden; }
.bar u { display: block; height: 100%; background: var(--s0); }
.bar u.s1 { background: var(--s1); }
.bar b { text-align: right; font-variant-numeric: tabular-nums; }
pre { margin: 0; overflow: auto; font: 13px/1.5 ui-monospace, monospace; }
)css";

}  // namespace

std::string render_report(const Report& report) {
  std::string page =
      str("<!doctype html>\n<html lang=en>\n<meta charset=utf-8>\n<meta name=viewport "
          "content=\"width=device-width\">\n<title>",
          escape_html(report.title), "</title>\n<style>", kStyle, kChartStyle, "</style>\n<h1>",
          escape_html(report.title), "</h1>\n", tiles(report.rows), summary_table(report.summary));
  if (report.accuracy) page += accuracy_block(*report.accuracy);
  std::string curves;
  for (const ChartSpec& spec : charts()) curves += render_chart(spec, report.rows);
  if (!curves.empty()) page += "<h2>Curves</h2><div class=charts>\n" + curves + "</div>\n";
  for (const Report::Table& rows : report.tables) page += table(rows);
  if (!report.config.empty())
    page += "<h2>Config</h2><div class=card><pre>" + escape_html(report.config) + "</pre></div>\n";
  return page + "<script>" + kChartScript + "</script>\n</html>\n";
}

}  // namespace temper
