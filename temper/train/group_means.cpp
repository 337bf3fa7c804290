#include "temper/train/group_means.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "temper/base/error.h"

namespace temper::train {

std::string group_metric(const std::string& metric, const std::string& group) {
  return "group_" + metric + "/" + group;
}

MetricInfo group_metric_info(const std::string& metric, const std::string& unit,
                             const std::string& help) {
  std::string title = metric + " by group";
  std::replace(title.begin(), title.end(), '_', ' ');
  return {group_metric(metric, "*"), unit, std::move(title), help};
}

void add_group_means(std::vector<Mean>& means, const std::string& metric, const at::Tensor& value_V,
                     std::span<const int64_t> unit_V, const GroupOfUnit& group_of,
                     std::span<const double> count_V) {
  check(value_V.numel() == std::ssize(unit_V), metric, " by group: ", value_V.numel(),
        " values for ", unit_V.size(), " units");
  const at::Tensor values = value_V.detach().to(at::kDouble).contiguous();
  const double* const value = values.const_data_ptr<double>();
  const size_t first = means.size();
  for (size_t begin = 0, end = 0; begin < unit_V.size(); begin = end) {
    const std::string& group = group_of(unit_V[begin]);
    Mean run{group_metric(metric, group), 0, 0};  // of values of one unit
    for (; end < unit_V.size() && unit_V[end] == unit_V[begin]; ++end) {
      run.sum += value[end];
      run.count += count_V.empty() ? 1 : count_V[end];
    }
    if (group.empty()) continue;
    const auto same = std::find_if(means.begin() + static_cast<std::ptrdiff_t>(first), means.end(),
                                   [&run](const Mean& m) { return m.name == run.name; });
    if (same == means.end()) {
      means.push_back(std::move(run));
    } else {
      same->sum += run.sum;
      same->count += run.count;
    }
  }
}

}  // namespace temper::train
