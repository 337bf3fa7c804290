#include "temper/metrics/report/report_chart.h"

#include <algorithm>
#include <cmath>

#include "temper/base/error.h"
#include "temper/metrics/format.h"
#include "temper/metrics/report/chart_axis.h"

namespace temper {
namespace {

// The drawing's coordinates: the plot lies between the margins.
constexpr double kWidth = 480, kHeight = 230, kLeft = 62, kRight = 12, kTop = 10, kBottom = 28;
// buckets of steps in a long curve; each shows its lowest and highest value
constexpr size_t kBuckets = 400;
constexpr size_t kColours = 8;  // colours --s0 to --s7; a curve beyond takes one again, dashed

struct Point {
  double step, value;
};
using Curve = std::vector<Point>;

Curve curve_of(const std::vector<MetricsRow>& rows, const std::string& metric) {
  Curve curve;
  for (const MetricsRow& row : rows)
    if (const auto value = row.number(metric); value && std::isfinite(*value))
      curve.push_back({static_cast<double>(row.step()), *value});
  return curve;
}

// A long curve's outline: in every bucket the lowest and the highest point, in order.
Curve thin_out(const Curve& curve) {
  if (curve.size() <= 2 * kBuckets) return curve;
  const auto by_value = [](const Point& a, const Point& b) { return a.value < b.value; };
  Curve thin;
  for (size_t bucket = 0; bucket < kBuckets; ++bucket) {
    const auto begin =
        curve.begin() + static_cast<std::ptrdiff_t>(bucket * curve.size() / kBuckets);
    const auto end =
        curve.begin() + static_cast<std::ptrdiff_t>((bucket + 1) * curve.size() / kBuckets);
    auto [low, high] = std::minmax_element(begin, end, by_value);
    if (high < low) std::swap(low, high);
    thin.push_back(*low);
    if (high != low) thin.push_back(*high);
  }
  return thin;
}

double x_of(double step, const Axis& x) {
  return kLeft + (step - x.low) / (x.high - x.low) * (kWidth - kLeft - kRight);
}
// A curve of losses that falls by an order of magnitude or more would lie on the axis for most of
// its length.
constexpr double kLogRatio = 15, kMostLogRatio = 1e9, kLeastLogValue = 1e-30;
bool is_logarithmic(const ChartSpec& spec, double low, double high) {
  const bool is_loss = std::all_of(spec.metrics.begin(), spec.metrics.end(), [](const auto& name) {
    return name == "loss" || name.starts_with("loss/") || name.ends_with("/loss") ||
           name == "perplexity" || name.ends_with("/perplexity");
  });
  return is_loss && low > kLeastLogValue && high > kLogRatio * low && high < kMostLogRatio * low;
}

double y_of(double value, const Axis& y) {
  return kHeight - kBottom - (value - y.low) / (y.high - y.low) * (kHeight - kTop - kBottom);
}

std::string grid(const Axis& x, const Axis& y) {
  std::string out;
  for (const auto& [value, text] : y.ticks) {
    const std::string at = format_fixed(y_of(value, y), 1);
    out += str("<path class=grid d=\"M", kLeft, " ", at, "H", kWidth - kRight,
               "\"/><text x=", kLeft - 6, " y=", at, " dy=\".32em\" text-anchor=end>",
               escape_html(text), "</text>");
  }
  for (const auto& [step, text] : x.ticks)
    out += str("<text x=", format_fixed(x_of(step, x), 1), " y=", kHeight - 8, " text-anchor=",
               step == x.low    ? "start"
               : step == x.high ? "end"
                                : "middle",
               ">", text, "</text>");
  return out;
}

// The class that colours a curve and its key.
std::string colour_class(size_t index) {
  return str("s", index % kColours, index < kColours ? "" : " again");
}

// The line, and its points for the script: [x, y, step, "value"], ...
std::string draw(const Curve& curve, size_t index, const Axis& x, const Axis& y, bool logarithmic,
                 const ChartSpec& spec) {
  std::string line, points;
  for (const Point& p : thin_out(curve)) {
    const std::string at_x = format_fixed(x_of(p.step, x), 1),
                      at_y = format_fixed(y_of(logarithmic ? std::log10(p.value) : p.value, y), 1);
    line += str(line.empty() ? "M" : "L", at_x, " ", at_y);
    points += str(points.empty() ? "" : ",", "[", at_x, ",", at_y, ",\"", format_count(p.step),
                  "\",\"", format_value(p.value, spec.unit), "\"]");
  }
  return str("<path class=\"line ", colour_class(index), "\" d=\"", line, "\" data-name=\"",
             escape_html(spec.metrics[index]), "\" data-points=\"", escape_html("[" + points + "]"),
             "\"/>");
}

}  // namespace

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else if (c == '\'')
      out += "&#39;";
    else if (static_cast<unsigned char>(c) >= 0x20 || c == '\n' || c == '\t')
      out += c;
  }
  return out;
}

std::string render_chart(const ChartSpec& spec, const std::vector<MetricsRow>& rows) {
  std::vector<Curve> curves;
  Curve all;
  for (const std::string& metric : spec.metrics) {
    curves.push_back(curve_of(rows, metric));
    if (curves.back().size() < 2) curves.back().clear();
    all.insert(all.end(), curves.back().begin(), curves.back().end());
  }
  if (all.empty()) return {};
  const auto [first, last] =
      std::minmax_element(all.begin(), all.end(), [](auto& a, auto& b) { return a.step < b.step; });
  const auto [low, high] = std::minmax_element(all.begin(), all.end(),
                                               [](auto& a, auto& b) { return a.value < b.value; });
  const Axis x = step_axis(first->step, last->step);
  const bool logarithmic = is_logarithmic(spec, low->value, high->value);
  const Axis y = logarithmic ? log_axis(low->value, high->value, spec.unit)
                             : value_axis(low->value, high->value, spec.unit);

  std::string lines, legend;
  for (size_t i = 0; i < curves.size(); ++i) {
    if (curves[i].empty()) continue;
    lines += draw(curves[i], i, x, y, logarithmic, spec);
    legend += str("<span class=\"key ", colour_class(i), "\">",
                  curves.size() > 1 ? escape_html(spec.metrics[i]) + " " : "", "<b>",
                  escape_html(format_value(curves[i].back().value, spec.unit)), "</b></span>");
  }
  return str("<figure><figcaption><span>", escape_html(spec.title),
             logarithmic ? " (logarithmic)</span>" : "</span>", legend,
             "</figcaption><svg viewBox=\"0 0 ", kWidth, " ", kHeight, "\" role=img aria-label=\"",
             escape_html(spec.title), " over the steps\">", grid(x, y), lines,
             "<g class=hover></g></svg></figure>\n");
}

const char* const kChartStyle = R"css(
:root { --s0: #2563eb; --s1: #e07b1f; --s2: #15924a; --s3: #9333ea; --s4: #d02f2f; --s5: #0b87a8; --s6: #cf2a7d; --s7: #6b8a12; }
@media (prefers-color-scheme: dark) {
  :root { --s0: #78a6ff; --s1: #f0a35a; --s2: #4ccf7f; --s3: #c48bff; --s4: #f47c7c; --s5: #3cc5e6; --s6: #f283bd; --s7: #a9cc45; }
}
.s0 { --c: var(--s0); } .s1 { --c: var(--s1); } .s2 { --c: var(--s2); } .s3 { --c: var(--s3); }
.s4 { --c: var(--s4); } .s5 { --c: var(--s5); } .s6 { --c: var(--s6); } .s7 { --c: var(--s7); }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); gap: 16px; }
figure { margin: 0; padding: 14px 14px 6px; background: var(--card); border: 1px solid var(--rule); border-radius: 10px; }
figcaption { display: flex; flex-wrap: wrap; gap: 2px 14px; align-items: baseline; margin-bottom: 6px; font-weight: 600; }
.key { font-weight: 400; font-size: 13px; color: var(--faint); }
.key b { color: var(--ink); }
.key::before { content: ""; display: inline-block; width: 10px; height: 3px; border-radius: 2px; margin: 0 6px 3px 0; background: var(--c); }
svg { display: block; width: 100%; height: auto; font-size: 11px; }
svg text { fill: var(--faint); font-variant-numeric: tabular-nums; }
.grid { stroke: var(--rule); stroke-width: 1; fill: none; }
.line { fill: none; stroke: var(--c); stroke-width: 1.7; stroke-linejoin: round; }
.line.again { stroke-dasharray: 5 3; }
.hover path { stroke: var(--faint); stroke-dasharray: 3 3; }
.hover rect { fill: var(--page); stroke: var(--rule); }
.hover text { fill: var(--ink); }
.hover circle { fill: var(--c); }
)css";

const char* const kChartScript = R"js(
for (const svg of document.querySelectorAll('svg')) {
  const lines = [...svg.querySelectorAll('.line')].map(line => ({
    name: line.dataset.name, s: line.classList[1], points: JSON.parse(line.dataset.points)}));
  const hover = svg.querySelector('.hover'), box = svg.viewBox.baseVal;
  const add = (tag, attributes, text) => {
    const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
    for (const name in attributes) node.setAttribute(name, attributes[name]);
    if (text) node.textContent = text;
    return hover.appendChild(node);
  };
  svg.onpointerleave = () => hover.replaceChildren();
  svg.onpointermove = event => {
    const x = (event.clientX - svg.getBoundingClientRect().left) / svg.clientWidth * box.width;
    const near = lines.map(line => ({...line, at: line.points.reduce(
        (a, b) => Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a)}));
    hover.replaceChildren();
    add('path', {d: `M${near[0].at[0]} 10V202`});
    const left = near[0].at[0] > box.width / 2 ? near[0].at[0] - 160 : near[0].at[0] + 10;
    add('rect', {x: left, y: 12, width: 150, height: 20 + 15 * near.length, rx: 5});
    add('text', {x: left + 8, y: 27}, 'step ' + near[0].at[2]);
    near.forEach((line, i) => {
      add('circle', {cx: line.at[0], cy: line.at[1], r: 3.5, class: line.s});
      add('text', {x: left + 8, y: 42 + 15 * i}, line.name + '  ' + line.at[3]);
    });
  };
}
)js";

}  // namespace temper
