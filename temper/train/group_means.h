// Metrics by group of rows (data.balance): beside a metric, its mean over the rows of each group.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "temper/metrics/metric_info.h"
#include "temper/train/loss.h"

namespace temper::train {

// "group_loss/mathematics": the metric of a group's rows.
std::string group_metric(const std::string& metric, const std::string& group);
// The declaration of a metric's means by group, "group_loss/*", whose chart is "loss by group".
MetricInfo group_metric_info(const std::string& metric, const std::string& unit,
                             const std::string& help);

// The name of the group of a unit of the step or of the evaluation; empty: it is in none.
using GroupOfUnit = std::function<const std::string&(int64_t unit)>;

// Adds the groups' means of a metric: value i, float32 or float64, is of the unit unit_V[i] and
// counts count_V[i] times (empty: once each).
void add_group_means(std::vector<Mean>& means, const std::string& metric, const at::Tensor& value_V,
                     std::span<const int64_t> unit_V, const GroupOfUnit& group_of,
                     std::span<const double> count_V = {});

}  // namespace temper::train
