// Which runs of a sweep end early: `temper sweep --stop-worst`.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "temper/cli/experiments/combinations.h"
#include "temper/train/config.h"

namespace temper::cli {

struct WorstRule {
  std::optional<double> share;  // none: no run ends early
  std::string by;               // a metric
  int64_t after = 0;            // the step in whose row it is
};

// Throws ConfigError where a run has no such row, as its config says.
void check_comparable(const WorstRule& rule, const train::RunConfig& config);
// The metric in the row of that step of the run in a directory; NaN for no number.
std::optional<double> compared_value(const WorstRule& rule, const std::string& directory);
// Marks the worst (Combination::is_worst), of equal ones the later, and names them. Runs that
// failed or ended before that step are left out. Throws ConfigError where another has no such row.
void choose_worst(const WorstRule& rule, std::vector<Combination>& runs,
                  const std::function<std::string(const Combination&)>& directory_of);

}  // namespace temper::cli
