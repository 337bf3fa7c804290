#include "temper/data/apportion.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <string_view>

#include "temper/base/error.h"

namespace temper::data {

std::vector<int64_t> apportion(int64_t total, const std::vector<double>& shares) {
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  std::vector<int64_t> counts;
  std::vector<double> remainders;
  int64_t left = total;
  for (const double share : shares) {
    const double exact = static_cast<double>(total) * (share / sum);
    // What rounding leaves below a whole number is that number.
    const auto count = static_cast<int64_t>(std::floor(exact + 1e-9));
    counts.push_back(count);
    remainders.push_back(std::max(0.0, exact - static_cast<double>(count)));
    left -= count;
  }
  std::vector<size_t> order(shares.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return remainders[a] > remainders[b] + 1e-9; });
  for (size_t i = 0; left > 0; i = (i + 1) % order.size())
    if (shares[order[i]] > 0) ++counts[order[i]], --left;
  for (size_t i = order.size(); left < 0; i = i == 1 ? order.size() : i - 1)
    if (counts[order[i - 1]] > 0) --counts[order[i - 1]], ++left;
  return counts;
}

std::vector<std::pair<std::string, double>> parse_shares(const std::string& text,
                                                         const std::string& flag) {
  std::vector<std::pair<std::string, double>> shares;
  std::string_view rest = text;
  while (true) {
    const std::string_view part = rest.substr(0, rest.find(','));
    const size_t equals = part.rfind('=');
    check<ConfigError>(equals != part.npos && equals > 0, flag, ": found `", part,
                       "`, expected NAME=SHARE, as in a=0.5,b=0.5");
    const std::string name(part.substr(0, equals));
    const std::string_view number = part.substr(equals + 1);
    double share = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), share);
    check<ConfigError>(
        error == std::errc() && end == number.data() + number.size() && share >= 0 && share <= 1,
        flag, ": `", name, "`: found `", number, "`, expected a share, a number from 0 to 1");
    for (const auto& [other, value] : shares)
      check<ConfigError>(other != name, flag, ": `", name, "` occurs twice");
    shares.emplace_back(name, share);
    if (part.size() == rest.size()) return shares;
    rest.remove_prefix(part.size() + 1);
  }
}

}  // namespace temper::data
