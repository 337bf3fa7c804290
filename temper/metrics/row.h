// One row of metrics: names and values in the order they were set. A training row has `step`, an
// evaluation row `step` and names that begin with "eval/".
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "temper/metrics/histogram.h"

namespace temper {

class MetricsRow {
 public:
  // float keeps its own precision: 0.1f prints as 0.1, and reads back to the same float32.
  using Value = std::variant<int64_t, float, double, std::string>;

  MetricsRow() = default;
  explicit MetricsRow(int64_t step) { set("step", step); }

  // Adds a name at the end, or replaces its value in place.
  void set(std::string_view name, Value value);
  template <std::integral Int>
  void set(std::string_view name, Int value) {
    set(name, Value(static_cast<int64_t>(value)));
  }

  const Value* find(std::string_view name) const;
  std::optional<double> number(std::string_view name) const;  // none for text or an absent name
  int64_t step() const;                                       // 0 where there is none
  bool is_eval() const;                                       // any name begins with "eval/"
  const std::vector<std::pair<std::string, Value>>& values() const { return values_; }

  // How values are distributed that have no number here: sinks that draw histograms show it, and
  // json() is without it.
  void set_histogram(std::string name, Histogram histogram) {
    if (!histogram.counts.empty()) histograms_.emplace_back(std::move(name), std::move(histogram));
  }
  const std::vector<std::pair<std::string, Histogram>>& histograms() const { return histograms_; }

  std::string json() const;  // one line; nan and infinities become null
  static MetricsRow from_json(std::string_view line, std::string_view where);  // throws DataError

 private:
  std::vector<std::pair<std::string, Value>> values_;
  std::vector<std::pair<std::string, Histogram>> histograms_;
};

// Shortest decimal that reads back to the same value, "nan", "inf" or "-inf"; text as it is.
std::string to_text(const MetricsRow::Value& value);

// The rows of a metrics.jsonl, without a half-written last line; none if there is no file.
std::vector<MetricsRow> read_metrics_file(const std::string& path);

// The text of such a file cut back to the rows up to `step`, byte for byte. A line that cannot be
// read goes with the rows behind it; where rows to keep follow it, DataError names it.
std::string metrics_up_to(int64_t step, const std::string& text, const std::string& path);

// The text of such a file, of rows that can be read, without the evaluation rows of `step`.
std::string metrics_without_evaluation(int64_t step, const std::string& text,
                                       const std::string& path);

}  // namespace temper
