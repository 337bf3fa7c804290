// Sums of an evaluation over several named sets of rows and over ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "temper/data/read/row_set.h"
#include "temper/data/rows/text_format.h"
#include "temper/dist/group.h"
#include "temper/metrics/row.h"
#include "temper/train/loss.h"

namespace temper::train {

// Reads the first rows of every set, so that a wrong one ends a run before it costs time, and as
// many as it takes to find one that is given. Throws the exceptions of `read`, which says whether
// the row is, and DataError where none is.
void check_rows(std::span<const std::unique_ptr<data::RowSet>> sets,
                const std::function<bool(const data::RowSet& set, int64_t row)>& read);

// How evaluation rows are read: data.balance is of the rows that are trained, and a row that is too
// long is cut where training refuses it.
template <class Format>
Format evaluation_format(Format format) {
  format.ungrouped = true;
  if (format.overlong == data::Overlong::kError) format.overlong = data::Overlong::kTruncate;
  return format;
}

class EvaluationSums {
 public:
  // A row of metrics has eval/METRIC of all sets together and, where there are several sets,
  // eval/SET/METRIC of each.
  explicit EvaluationSums(std::vector<std::string> set_names);

  // A mean is sum / count over everything that was added to it, or e to the power of that; a total
  // is only added up.
  void add_mean(size_t set, const std::string& metric, double sum, double count,
                bool exponential = false);
  void add_total(size_t set, const std::string& metric, int64_t count);
  void add_means(size_t set, std::span<const Mean> means);
  // Sums over the ranks; false where one of them was stopped. Every rank must call it.
  bool reduce(dist::Group& group, bool stopped);
  void write(MetricsRow& row) const;

 private:
  struct Sum {
    double sum = 0, count = 0;
    bool total = false, exponential = false;
  };
  std::vector<std::string> names_;
  std::vector<std::string> order_;  // names of the metrics, in the order in which they were added
  std::map<std::string, std::vector<Sum>> metrics_;  // [set] sums of each metric
};

// Names of sets: their own, or the file's without folders and ending; a number is added where two
// are alike.
std::vector<std::string> set_names(const std::vector<data::SourceSpec>& sets);

}  // namespace temper::train
