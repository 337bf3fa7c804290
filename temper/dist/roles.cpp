#include "temper/dist/roles.h"

#include <algorithm>
#include <set>

#include "temper/base/error.h"

namespace temper::dist {
namespace {

bool contains(const std::vector<int64_t>& ranks, int64_t rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

// Divides the list into groups of `size` ranks; returns the group with `rank`, which is in the
// list.
std::vector<int> find_group(const std::vector<int64_t>& ranks, int64_t rank, int64_t size) {
  const auto place = std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
  const auto first = ranks.begin() + place / size * size;
  return {first, first + size};
}

}  // namespace

void RolesSection::fields(Fields& f) {
  f.add("rollout", rollout,
        "ranks that sample completions while the others train; empty: every rank samples",
        at_least(0));
  f.add("reference", reference,
        "ranks that compute the reference model's log-probabilities; empty: every rank does",
        at_least(0));
  f.add("reward", reward,
        "ranks that have the reward models and judges of the run, which training ranks then do "
        "not; empty: every rank does",
        at_least(0));
  f.add("tensor", tensor,
        "tensor-parallel degree of the model on ranks with a role: consecutive ranks of the role's "
        "list share one copy",
        at_least(1));
}

bool RolesSection::samples(int rank) const { return contains(rollout, rank); }
bool RolesSection::scores(int rank) const { return contains(reference, rank); }
bool RolesSection::judges(int rank) const { return contains(reward, rank); }

void RolesSection::check_names(const Where& where) const {
  const auto check_list = [&](const char* key, const std::vector<int64_t>& ranks) {
    std::set<int64_t> seen;
    for (const int64_t rank : ranks)
      check<ConfigError>(seen.insert(rank).second, where(key), ": rank ", rank, " is named twice");
  };
  check_list("roles.rollout", rollout);
  check_list("roles.reference", reference);
  check_list("roles.reward", reward);
  for (const int64_t rank : reward)
    check<ConfigError>(!contains(rollout, rank) && !contains(reference, rank),
                       where("roles.reward"), ": rank ", rank,
                       " has another role too; expected a rank with this one alone");
  const auto check_groups = [&](const char* key, const std::vector<int64_t>& ranks) {
    check<ConfigError>(static_cast<int64_t>(ranks.size()) % tensor == 0, where(key), ": found ",
                       ranks.size(), ranks.size() == 1 ? " rank" : " ranks",
                       ", expected a multiple of roles.tensor (", tensor, ")");
  };
  check_groups("roles.rollout", rollout);
  check_groups("roles.reference", reference);
  check<ConfigError>(!rollout.empty() || !reference.empty() || tensor == 1, where("roles.tensor"),
                     ": found ", tensor,
                     ", and no rank has a role (roles.rollout, roles.reference); mesh.tensor is "
                     "that of ranks that train");
  for (const int64_t rank : rollout)
    check<ConfigError>(
        !contains(reference, rank) ||
            find_group(reference, rank, tensor) == find_group(rollout, rank, tensor),
        where("roles.reference"), ": rank ", rank,
        " has both roles, and they divide their ranks differently into groups of ", tensor,
        " (roles.tensor); name it with the same ranks, in the same order, in both lists");
}

std::vector<int> RolesSection::training(int64_t ranks, const Where& where) const {
  const auto check_list = [&](const char* key, const std::vector<int64_t>& named) {
    for (const int64_t rank : named)
      check<ConfigError>(
          rank < ranks, where(key), ": found rank ", rank, ", and ",
          ranks == 1 ? "the run has one rank" : temper::str("the run's ranks are 0 to ", ranks - 1),
          "; start more with --nproc or torchrun");
  };
  check_list("roles.rollout", rollout);
  check_list("roles.reference", reference);
  check_list("roles.reward", reward);
  std::vector<int> rest;
  for (int rank = 0; rank < ranks; ++rank)
    if (!samples(rank) && !scores(rank) && !judges(rank)) rest.push_back(rank);
  check<ConfigError>(!rest.empty(), where("roles"), ": all ", ranks,
                     " ranks have roles of their own and none is left to train; start more with "
                     "--nproc or torchrun");
  const char* const of_first = samples(0)  ? "roles.rollout"
                               : scores(0) ? "roles.reference"
                                           : "roles.reward";
  check<ConfigError>(rest.front() == 0, where(of_first),
                     ": found rank 0, through which the others find each other and which writes "
                     "what the run leaves; choose other ranks");
  return rest;
}

std::vector<int> RolesSection::group_of(int64_t rank) const {
  if (contains(reward, rank)) return {static_cast<int>(rank)};
  return find_group(contains(rollout, rank) ? rollout : reference, rank, tensor);
}

std::vector<int64_t> RolesSection::leaders(const std::vector<int64_t>& role) const {
  std::vector<int64_t> first;
  for (size_t i = 0; i < role.size(); i += static_cast<size_t>(tensor)) first.push_back(role[i]);
  return first;
}

std::vector<int> RolesSection::serving() const {
  std::set<int> all(rollout.begin(), rollout.end());
  all.insert(reference.begin(), reference.end());
  all.insert(reward.begin(), reward.end());
  return {all.begin(), all.end()};
}

}  // namespace temper::dist
