// Shares of a whole as whole numbers of rows.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace temper::data {

// Whole numbers that add up to `total`, in proportion to `shares` (at least 0, together above 0):
// the largest remainder's method (Hamilton); of equal remainders the first gets the row.
std::vector<int64_t> apportion(int64_t total, const std::vector<double>& shares);

// Reads "a=0.5,b=0.5" in the order in which it is written. Throws ConfigError that begins with
// `flag` for what is no such list, a name that occurs twice and a share that is no number in [0,
// 1].
std::vector<std::pair<std::string, double>> parse_shares(const std::string& text,
                                                         const std::string& flag);

}  // namespace temper::data
