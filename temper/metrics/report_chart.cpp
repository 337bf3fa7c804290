#include "temper/metrics/report_chart.h"

#include <algorithm>
#include <cmath>

#include "temper/base/error.h"
#include "temper/metrics/format.h"

namespace temper {
namespace {

// The drawing's coordinates: the plot lies between the margins.
constexpr double kWidth = 480, kHeight = 230, kLeft = 62, kRight = 12, kTop = 10, kBottom = 28;
constexpr size_t kBuckets = 400;  // of steps; each shows its lowest and highest value

struct Point {
  double step, value;
};
using Curve = std::vector<Point>;

struct Axis {
  double low, high, tick;
};

Curve curve_of(const std::vector<MetricsRow>& rows, const char* metric) {
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

// Bounds at whole ticks of 1, 2 or 5 times a power of ten.
Axis axis_of(double low, double high, int ticks) {
  const double pad = high > low ? 0 : std::max(std::abs(low) * 0.1, 1e-12);
  low -= pad, high += pad;
  const double rough = (high - low) / ticks, power = std::pow(10, std::floor(std::log10(rough)));
  const double tick = power * (rough / power <= 1   ? 1
                               : rough / power <= 2 ? 2
                               : rough / power <= 5 ? 5
                                                    : 10);
  return {std::floor(low / tick) * tick, std::ceil(high / tick) * tick, tick};
}

double x_of(double step, const Axis& x) {
  return kLeft + (step - x.low) / (x.high - x.low) * (kWidth - kLeft - kRight);
}
double y_of(double value, const Axis& y) {
  return kHeight - kBottom - (value - y.low) / (y.high - y.low) * (kHeight - kTop - kBottom);
}

std::string grid(const Axis& x, const Axis& y, std::string (*format)(double)) {
  std::string out;
  for (int i = 0; i <= std::lround((y.high - y.low) / y.tick); ++i) {
    const double value = y.low + i * y.tick;
    const std::string at = format_fixed(y_of(value, y), 1);
    // A tick that should be 0 is what rounding left of it.
    const std::string label = format(std::abs(value) < y.tick * 1e-6 ? 0 : value);
    out += str("<path class=grid d=\"M", kLeft, " ", at, "H", kWidth - kRight,
               "\"/><text x=", kLeft - 6, " y=", at, " dy=\".32em\" text-anchor=end>",
               escape_html(label), "</text>");
  }
  for (const double step : {x.low, (x.low + x.high) / 2, x.high})
    out += str("<text x=", format_fixed(x_of(step, x), 1), " y=", kHeight - 8, " text-anchor=",
               step == x.low    ? "start"
               : step == x.high ? "end"
                                : "middle",
               ">", format_count(step), "</text>");
  return out;
}

// The line, and its points for the script: [x, y, step, "value"], ...
std::string draw(const Curve& curve, size_t index, const Axis& x, const Axis& y,
                 const ChartSpec& spec) {
  std::string line, points;
  for (const Point& p : thin_out(curve)) {
    const std::string at_x = format_fixed(x_of(p.step, x), 1),
                      at_y = format_fixed(y_of(p.value, y), 1);
    line += str(line.empty() ? "M" : "L", at_x, " ", at_y);
    points += str(points.empty() ? "" : ",", "[", at_x, ",", at_y, ",\"", format_count(p.step),
                  "\",\"", spec.format(p.value), "\"]");
  }
  return str("<path class=\"line s", index, "\" d=\"", line, "\" data-name=\"",
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
  for (const char* metric : spec.metrics) {
    curves.push_back(curve_of(rows, metric));
    if (curves.back().size() < 2) curves.back().clear();
    all.insert(all.end(), curves.back().begin(), curves.back().end());
  }
  if (all.empty()) return {};
  const auto [first, last] =
      std::minmax_element(all.begin(), all.end(), [](auto& a, auto& b) { return a.step < b.step; });
  const auto [low, high] = std::minmax_element(all.begin(), all.end(),
                                               [](auto& a, auto& b) { return a.value < b.value; });
  const Axis x{first->step, std::max(last->step, first->step + 1), 0};
  const Axis y = axis_of(low->value, high->value, 4);

  std::string lines, legend;
  for (size_t i = 0; i < curves.size(); ++i) {
    if (curves[i].empty()) continue;
    lines += draw(curves[i], i, x, y, spec);
    legend += str("<span class=\"key s", i, "\">",
                  curves.size() > 1 ? escape_html(spec.metrics[i]) + " " : "", "<b>",
                  escape_html(spec.format(curves[i].back().value)), "</b></span>");
  }
  return str("<figure><figcaption><span>", escape_html(spec.title), "</span>", legend,
             "</figcaption><svg viewBox=\"0 0 ", kWidth, " ", kHeight, "\" role=img aria-label=\"",
             escape_html(spec.title), " over the steps\">", grid(x, y, spec.format), lines,
             "<g class=hover></g></svg></figure>\n");
}

const char* const kChartStyle = R"css(
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); gap: 16px; }
figure { margin: 0; padding: 14px 14px 6px; background: var(--card); border: 1px solid var(--rule); border-radius: 10px; }
figcaption { display: flex; gap: 14px; align-items: baseline; margin-bottom: 6px; font-weight: 600; }
.key { font-weight: 400; font-size: 13px; color: var(--faint); }
.key b { color: var(--ink); }
.key::before { content: ""; display: inline-block; width: 10px; height: 3px; border-radius: 2px; margin: 0 6px 3px 0; background: var(--s0); }
.key.s1::before { background: var(--s1); }
svg { display: block; width: 100%; height: auto; font-size: 11px; }
svg text { fill: var(--faint); font-variant-numeric: tabular-nums; }
.grid { stroke: var(--rule); stroke-width: 1; fill: none; }
.line { fill: none; stroke: var(--s0); stroke-width: 1.7; stroke-linejoin: round; }
.line.s1 { stroke: var(--s1); }
.hover path { stroke: var(--faint); stroke-dasharray: 3 3; }
.hover rect { fill: var(--page); stroke: var(--rule); }
.hover text { fill: var(--ink); }
.hover circle { fill: var(--s0); }
.hover circle.s1 { fill: var(--s1); }
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
