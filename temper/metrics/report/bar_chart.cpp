#include "temper/metrics/report/bar_chart.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "temper/base/error.h"
#include "temper/metrics/format.h"
#include "temper/metrics/report/report_chart.h"

namespace temper {
namespace {

constexpr std::array kEighths = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
constexpr int kNameWidth = 180, kBarWidth = 460, kValueWidth = 110, kBarHeight = 14, kGap = 8,
              kBarsTop = 48;
constexpr std::array kBarColors = {"#2563eb", "#f59e0b", "#10b981"};

constexpr const char* kSvgStyle =
    "text { font: 13px system-ui, sans-serif; fill: #1b1f26; } .title { font-size: 16px; "
    "font-weight: 600; } .page { fill: #fff; } @media (prefers-color-scheme: dark) { text { fill: "
    "#e6e8eb; } .page { fill: #1a1e24; } }";

std::string shown(double value, bool share) {
  return share ? format_fixed(100 * value, 1) + " %" : format_count(value);
}

std::string shortened(const std::string& name) {
  constexpr size_t kMost = 24;
  if (name.size() <= kMost) return name;
  size_t end = kMost;
  while (end > 0 && (name[end] & 0xc0) == 0x80) --end;  // not within a character of UTF-8
  return name.substr(0, end) + "…";
}

}  // namespace

std::string text_bar(double value, double largest, int width) {
  if (largest <= 0 || value <= 0) return {};
  const auto eighths = std::max<int64_t>(1, std::llround(value / largest * width * 8));
  std::string bar;
  for (int64_t i = 0; i < eighths / 8; ++i) bar += "█";
  return bar + kEighths[static_cast<size_t>(eighths % 8)];
}

std::string render_bar_chart(const BarChart& chart) {
  double largest = 0;
  size_t series = 1;
  for (const Bar& bar : chart.bars) {
    series = std::max(series, bar.values.size());
    for (const double value : bar.values) largest = std::max(largest, value);
  }
  const int step = static_cast<int>(series) * kBarHeight + kGap;
  const int width = kNameWidth + kBarWidth + kValueWidth;
  const int height = kBarsTop + static_cast<int>(chart.bars.size()) * step + kGap;
  std::string out =
      str("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", width, " ", height,
          "\" width=\"", width, "\" height=\"", height, "\">\n<style>", kSvgStyle,
          "</style>\n<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n",
          "<text class=\"title\" x=\"16\" y=\"28\">", escape_html(chart.title), "</text>\n");
  for (size_t s = 0; chart.series.size() > 1 && s < chart.series.size(); ++s) {
    const int x = kNameWidth + kBarWidth / 2 + static_cast<int>(s) * 120;
    out += str("<rect x=\"", x, "\" y=\"18\" width=\"12\" height=\"12\" fill=\"",
               kBarColors[s % kBarColors.size()], "\"/><text x=\"", x + 18, "\" y=\"28\">",
               escape_html(chart.series[s]), "</text>\n");
  }
  for (size_t b = 0; b < chart.bars.size(); ++b) {
    const Bar& bar = chart.bars[b];
    const int top = kBarsTop + static_cast<int>(b) * step;
    out += str("<text x=\"", kNameWidth - 8, "\" y=\"",
               top + static_cast<int>(series) * kBarHeight / 2 + 5, "\" text-anchor=\"end\">",
               escape_html(shortened(bar.name)), "</text>\n");
    for (size_t s = 0; s < bar.values.size(); ++s) {
      const double length = largest > 0 ? bar.values[s] / largest * kBarWidth : 0;
      const int y = top + static_cast<int>(s) * kBarHeight;
      out += str("<rect x=\"", kNameWidth, "\" y=\"", y + 1, "\" width=\"", format_fixed(length, 1),
                 "\" height=\"", kBarHeight - 2, "\" rx=\"2\" fill=\"",
                 kBarColors[s % kBarColors.size()], "\"/><text x=\"",
                 format_fixed(kNameWidth + length + 6, 1), "\" y=\"", y + kBarHeight - 3, "\">",
                 shown(bar.values[s], chart.shares), "</text>\n");
    }
  }
  return out + "</svg>\n";
}

}  // namespace temper
