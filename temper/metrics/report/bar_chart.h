// Bars beside their names: on the terminal, and as an SVG file.
#pragma once

#include <string>
#include <vector>

namespace temper {

struct Bar {
  std::string name;
  std::vector<double> values;  // a bar each, under the name; at least 0
};

struct BarChart {
  std::string title;
  std::vector<std::string> series;  // names of the values; of one alone it is not shown
  std::vector<Bar> bars;
  bool shares = false;  // values are shown as percentages
};

// A bar of at most `width` characters of eighths of a block: "▇▇▇▎".
std::string text_bar(double value, double largest, int width);

// A whole SVG document, light or dark as the viewer asks.
std::string render_bar_chart(const BarChart& chart);

}  // namespace temper
