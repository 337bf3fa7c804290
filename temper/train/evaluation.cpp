#include "temper/train/evaluation.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/exact_math.h"
#include "temper/base/json.h"
#include "temper/data/loader.h"

namespace temper::train {

void check_rows(std::span<const std::unique_ptr<data::RowSet>> sets,
                const std::function<bool(const data::RowSet& set, int64_t row)>& read) {
  constexpr int64_t kMost = 4096;  // rows of each set: about a second
  for (const auto& set : sets) {
    bool any = false;
    for (int64_t r = 0; r < set->size() && (r < kMost || !any); ++r)
      if (read(*set, r)) any = true;
    check<DataError>(any, set->path(), data::kAllLeftOut);
  }
}

EvaluationSums::EvaluationSums(std::vector<std::string> set_names) : names_(std::move(set_names)) {}

void EvaluationSums::add_mean(size_t set, const std::string& metric, double sum, double count,
                              bool exponential) {
  const auto [it, added] = metrics_.try_emplace(metric, names_.size());
  if (added) order_.push_back(metric);
  it->second[set].sum += sum;
  it->second[set].count += count;
  for (Sum& s : it->second) s.exponential = exponential;
}

void EvaluationSums::add_total(size_t set, const std::string& metric, int64_t count) {
  add_mean(set, metric, static_cast<double>(count), 0);
  for (Sum& s : metrics_[metric]) s.total = true;
}

void EvaluationSums::add_means(size_t set, std::span<const Mean> means) {
  for (const Mean& mean : means) add_mean(set, mean.name, mean.sum, mean.count, mean.exponential);
}

// Ranks may have seen other metrics: names are exchanged with the sums.
bool EvaluationSums::reduce(dist::Group& group, bool stopped) {
  Json mine = {{"stopped", stopped}, {"metrics", Json::array()}};
  for (const std::string& metric : order_)
    for (size_t set = 0; set < names_.size(); ++set) {
      const Sum& s = metrics_[metric][set];
      mine["metrics"].push_back({metric, set, s.sum, s.count, s.total, s.exponential});
    }
  if (group.size() == 1) return !stopped;
  const std::vector<std::string> all = group.all_gather(mine.dump());
  metrics_.clear();
  order_.clear();
  bool any = false;
  for (const std::string& bytes : all) {
    const Json theirs = parse_json(bytes, "another rank");
    any = any || theirs["stopped"].get<bool>();
    for (const Json& item : theirs["metrics"]) {
      const std::string metric = item[0].get<std::string>();
      const size_t set = item[1].get<size_t>();
      add_mean(set, metric, item[2].is_number() ? item[2].get<double>() : 0.0 / 0.0,
               item[3].get<double>(), item[5].get<bool>());
      if (item[4].get<bool>()) metrics_[metric][set].total = true;
    }
  }
  return !any;
}

void EvaluationSums::write(MetricsRow& row) const {
  const auto set = [&](const std::string& name, const Sum& s) {
    if (s.total)
      row.set(name, static_cast<int64_t>(s.sum));
    else if (s.count > 0)  // a set without rows has no mean
      row.set(name, s.exponential ? exact::exp(s.sum / s.count) : s.sum / s.count);
  };
  for (const std::string& metric : order_) {
    const std::vector<Sum>& sums = metrics_.at(metric);
    Sum all;
    for (const Sum& s : sums) {
      all.sum += s.sum;
      all.count += s.count;
      all.total = all.total || s.total;
      all.exponential = all.exponential || s.exponential;
    }
    set("eval/" + metric, all);
    for (size_t i = 0; i < sums.size() && sums.size() > 1; ++i)
      set("eval/" + names_[i] + "/" + metric, sums[i]);
  }
}

std::vector<std::string> set_names(const std::vector<data::SourceSpec>& sets) {
  std::vector<std::string> names;
  for (const data::SourceSpec& set : sets) {
    const std::string stem = std::filesystem::path(set.path).stem().string();
    const std::string name = set.name.empty() ? stem : set.name;
    std::string unique = name;
    for (int i = 2; std::find(names.begin(), names.end(), unique) != names.end(); ++i)
      unique = name + "-" + std::to_string(i);
    names.push_back(unique);
  }
  return names;
}

}  // namespace temper::train
