#include "temper/data/tools/balance.h"

#include <algorithm>
#include <cmath>

#include "temper/base/config/config.h"
#include "temper/base/error.h"
#include "temper/data/apportion.h"
#include "temper/data/read/row_file.h"
#include "temper/data/rows/row_texts.h"
#include "temper/text/unicode.h"

namespace temper::data {
namespace {

constexpr double kRounding = 1e-6;  // of shares that were written in decimals
constexpr int64_t kMostTimes = 100;

int64_t all_rows(const std::vector<BalanceGroup>& groups) {
  int64_t rows = 0;
  for (const BalanceGroup& group : groups) rows += group.rows;
  return rows;
}

std::vector<std::string> group_names(const std::vector<BalanceGroup>& groups) {
  std::vector<std::string> names;
  for (const BalanceGroup& group : groups) names.push_back(group.name);
  return names;
}

std::string shown_names(const std::vector<std::string>& names) {
  constexpr size_t kShown = 12;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i)
    text += (i ? ", " : "") + printable_line(names[i]);
  return names.size() > kShown ? str(text, " and ", names.size() - kShown, " more") : text;
}

}  // namespace

void set_shares(std::vector<BalanceGroup>& groups,
                const std::vector<std::pair<std::string, double>>& targets,
                const std::string& flag) {
  double sum = 0;
  std::vector<bool> named(groups.size());
  for (const auto& [name, share] : targets) {
    const auto found =
        std::find_if(groups.begin(), groups.end(),
                     [&name = name](const BalanceGroup& group) { return group.name == name; });
    check<ConfigError>(found != groups.end(), flag, ": no row is in `", name,
                       "`; there are: ", shown_names(group_names(groups)),
                       did_you_mean(name, group_names(groups)));
    check<ConfigError>(found->rows > 0 || share == 0, flag, ": no row is in `", name,
                       "`, of which ", share, " of the rows should be");
    found->share = share;
    named[static_cast<size_t>(found - groups.begin())] = true;
    sum += share;
  }
  check<ConfigError>(sum <= 1 + kRounding, flag, ": the shares add up to ", sum,
                     ", expected at most 1");
  double others = 0;  // what the groups share in which no target is
  const auto weight = [&](const BalanceGroup& group) {
    return targets.empty() ? static_cast<double>(group.rows > 0) : static_cast<double>(group.rows);
  };
  for (size_t i = 0; i < groups.size(); ++i)
    if (!named[i]) others += weight(groups[i]);
  const double left = sum >= 1 - kRounding ? 0 : 1 - sum;
  check<ConfigError>(left == 0 || others > 0, flag, ": the shares add up to ", sum,
                     ", expected 1, as no other group has rows");
  for (size_t i = 0; i < groups.size(); ++i)
    if (!named[i]) groups[i].share = left > 0 ? left * weight(groups[i]) / others : 0;
}

void balance(std::vector<BalanceGroup>& groups, BalanceMode mode) {
  const int64_t rows = all_rows(groups);
  std::vector<double> shares;
  double least = 0, most = INFINITY;  // rows in all
  for (const BalanceGroup& group : groups) {
    shares.push_back(group.share);
    if (group.share == 0) continue;
    least = std::max(least, static_cast<double>(group.rows) / group.share);
    most = std::min(most, static_cast<double>(group.rows) / group.share);
  }
  check<ConfigError>(mode == BalanceMode::kUnder ||
                         least <= static_cast<double>(kMostTimes) * static_cast<double>(rows),
                     "over-sampling to these shares takes ", least, " rows, and there are ", rows,
                     "; --mode under leaves rows out instead");
  const auto fits = [&](const std::vector<int64_t>& counts) {
    for (size_t i = 0; i < groups.size(); ++i) {
      if (groups[i].share == 0) continue;
      if (mode == BalanceMode::kUnder ? counts[i] > groups[i].rows : counts[i] < groups[i].rows)
        return false;
    }
    return true;
  };
  // Of exact shares, so that rounding each share to a row keeps within the groups.
  int64_t total = static_cast<int64_t>(mode == BalanceMode::kUnder ? std::floor(most + kRounding)
                                                                   : std::ceil(least - kRounding));
  std::vector<int64_t> counts = apportion(total, shares);
  while (!fits(counts)) {
    total += mode == BalanceMode::kUnder ? -1 : 1;
    counts = apportion(total, shares);
  }
  for (size_t i = 0; i < groups.size(); ++i) groups[i].balanced = counts[i];
}

RowCounts::RowCounts(const BalanceGroup& group, uint64_t seed)
    : chosen_(static_cast<size_t>(group.rows)) {
  if (group.rows == 0) return;
  whole_ = group.balanced / group.rows;
  const uint64_t source = hash_of_text(group.name).low;
  for (int64_t i = 0; i < group.balanced % group.rows; ++i)
    chosen_[static_cast<size_t>(permuted(i, group.rows, seed, source, 0))] = true;
}

std::vector<int64_t> balanced_rows(const GroupedRows& rows, uint64_t seed) {
  std::vector<RowCounts> counts;
  int64_t total = 0;
  for (const BalanceGroup& group : rows.groups) {
    counts.emplace_back(group, seed);
    total += group.balanced;
  }
  std::vector<int64_t> index(rows.groups.size()), times;
  times.reserve(rows.of_row.size());
  for (const uint32_t group : rows.of_row) times.push_back(counts[group].of(index[group]++));
  std::vector<int64_t> out;
  out.reserve(static_cast<size_t>(total));
  for (int64_t round = 0; static_cast<int64_t>(out.size()) < total; ++round)
    for (size_t row = 0; row < times.size(); ++row)
      if (times[row] > round) out.push_back(static_cast<int64_t>(row));
  return out;
}

}  // namespace temper::data
