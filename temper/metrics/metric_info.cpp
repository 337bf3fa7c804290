#include "temper/metrics/metric_info.h"

namespace temper {
namespace {

constexpr std::string_view kEvaluation = "eval/";

// `*` matches at least one character.
bool matches_pattern(std::string_view pattern, std::string_view name) {
  if (!pattern.ends_with('*')) return false;
  pattern.remove_suffix(1);
  return name.size() > pattern.size() && name.starts_with(pattern);
}

}  // namespace

const MetricInfo* find_metric(std::span<const MetricInfo> metrics, std::string_view name) {
  for (const MetricInfo& info : metrics)
    if (info.name == name) return &info;
  for (const MetricInfo& info : metrics)
    if (matches_pattern(info.name, name)) return &info;
  return nullptr;
}

const MetricInfo* find_evaluated_metric(std::span<const MetricInfo> metrics, std::string_view name,
                                        std::string_view* rest) {
  if (!name.starts_with(kEvaluation)) return nullptr;
  name.remove_prefix(kEvaluation.size());
  for (;;) {
    if (const MetricInfo* info = find_metric(metrics, name)) {
      if (rest) *rest = name;
      return info;
    }
    const size_t slash = name.find('/');
    if (slash == std::string_view::npos) return nullptr;
    name.remove_prefix(slash + 1);
  }
}

std::string metric_label(const MetricInfo& info, std::string_view name) {
  if (info.name.ends_with('*')) name.remove_prefix(info.name.size() - 1);
  return info.label.empty() || info.name.ends_with('*') ? std::string(name) : info.label;
}

}  // namespace temper
