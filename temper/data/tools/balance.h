// How often each row of several groups occurs so that the groups have given shares.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace temper::data {

// kUnder: as many rows as have these shares with none twice. kOver: as few as have them with each
// row at least once.
enum class BalanceMode { kUnder, kOver };

struct BalanceGroup {
  std::string name;
  int64_t rows = 0;      // that there are
  double share = 0;      // that is asked for
  int64_t balanced = 0;  // rows, repeated ones as often as they occur
};

// Sets the groups' shares: those that `targets` names, and of what these leave of 1 to the other
// groups each in proportion to its rows. Without targets all groups that have rows get the same.
// Throws ConfigError that begins with `flag` where a target names no group, or one without rows, or
// the targets add up to more than 1, or to less and no other group has rows.
void set_shares(std::vector<BalanceGroup>& groups,
                const std::vector<std::pair<std::string, double>>& targets,
                const std::string& flag);

// Sets `balanced` of every group: the number of all rows in proportion to the shares, by the
// largest remainder. Throws ConfigError where kOver needs more than 100 times as many rows as there
// are.
void balance(std::vector<BalanceGroup>& groups, BalanceMode mode);

// How often the row with number `index` of a group's occurs: balanced / rows, rounded down or up;
// which rows are rounded up is a function of the seed, the group's name and the numbers. Rows of a
// group keep no order.
class RowCounts {
 public:
  RowCounts(const BalanceGroup& group, uint64_t seed);
  int64_t of(int64_t index) const {
    return whole_ + (index >= 0 && chosen_[static_cast<size_t>(index)]);
  }

 private:
  int64_t whole_ = 0;
  std::vector<bool> chosen_;
};

// The number of the group of each row, and the groups with their numbers of rows.
struct GroupedRows {
  std::vector<BalanceGroup> groups;
  std::vector<uint32_t> of_row;
};

// The rows, by number, that groups' `balanced` asks for: in their order, then those that are
// repeated, once around for each further time.
std::vector<int64_t> balanced_rows(const GroupedRows& rows, uint64_t seed);

}  // namespace temper::data
