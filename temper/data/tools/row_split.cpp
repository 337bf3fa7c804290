#include "temper/data/tools/row_split.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "temper/data/apportion.h"

namespace temper::data {

std::vector<uint8_t> split_by_hash(const std::vector<RowHash>& hashes,
                                   const std::vector<double>& shares) {
  const auto rows = static_cast<int64_t>(hashes.size());
  std::vector<uint32_t> order(hashes.size());
  std::iota(order.begin(), order.end(), uint32_t{0});
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return hashes[a] < hashes[b]; });
  std::vector<int64_t> begin;  // of each hash's rows in `order`, and the end
  for (int64_t i = 0; i < rows; ++i)
    if (i == 0 ||
        hashes[order[static_cast<size_t>(i)]] != hashes[order[static_cast<size_t>(i - 1)]])
      begin.push_back(i);
  const auto groups = static_cast<int64_t>(begin.size());
  begin.push_back(rows);

  const std::vector<int64_t> counts = apportion(rows, shares);
  int64_t used = std::count_if(shares.begin(), shares.end(), [](double s) { return s > 0; });
  std::vector<uint8_t> side(hashes.size());
  int64_t group = 0, bound = 0;
  for (size_t s = 0; s < shares.size(); ++s) {
    if (shares[s] == 0) continue;
    --used;
    bound += counts[s];
    const int64_t first = group;
    // A hash's rows go where most of them lie before the bound.
    while (group < groups && (used == 0 || (begin[static_cast<size_t>(group)] +
                                            begin[static_cast<size_t>(group + 1)]) <= 2 * bound))
      ++group;
    group = std::max(group, std::min(first + 1, groups));
    group = std::max(std::min(group, groups - used), std::min(first, groups));
    for (int64_t i = begin[static_cast<size_t>(first)]; i < begin[static_cast<size_t>(group)]; ++i)
      side[order[static_cast<size_t>(i)]] = static_cast<uint8_t>(s);
  }
  return side;
}

std::vector<uint8_t> hold_out_by_hash(const std::vector<RowHash>& hashes, double fraction) {
  std::vector<uint8_t> side = split_by_hash(hashes, {1 - fraction, fraction});
  const auto rows = static_cast<double>(hashes.size());
  std::map<RowHash, int64_t> counts;  // of the hashes that may be held out
  for (const RowHash& hash : hashes) ++counts[hash];
  while (fraction < 0.5 && 2 * std::count(side.begin(), side.end(), 1) > std::ssize(side) &&
         counts.size() > 1) {
    counts.erase(std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) {
      return a.second < b.second;
    }));
    std::vector<RowHash> others;
    for (const RowHash& hash : hashes)
      if (counts.contains(hash)) others.push_back(hash);
    const double share = std::min(1.0, fraction * rows / static_cast<double>(others.size()));
    const std::vector<uint8_t> of_others = split_by_hash(others, {1 - share, share});
    for (size_t i = 0, next = 0; i < hashes.size(); ++i)
      side[i] = counts.contains(hashes[i]) ? of_others[next++] : uint8_t{0};
  }
  return side;
}

}  // namespace temper::data
