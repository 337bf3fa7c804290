// The `roles` section of a run's config: ranks that are no part of the mesh and serve it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "temper/base/config/config.h"

namespace temper::dist {

// The ranks of each role; a rank may have several. Those that are not named train.
struct RolesSection {
  std::vector<int64_t> rollout;    // they sample completions
  std::vector<int64_t> reference;  // they compute the reference model's log-probabilities
  std::vector<int64_t> reward;     // each has the models that rewards are, and no other role
  // This many ranks, next to each other in a role's list, hold its model together by tensor
  // parallelism. Requests go to the first of them.
  int64_t tensor = 1;
  void fields(Fields& f);

  bool any() const { return !rollout.empty() || !reference.empty() || !reward.empty(); }
  bool samples(int rank) const;  // whether the rank has the role `rollout`
  bool scores(int rank) const;   // `reference`
  bool judges(int rank) const;   // `reward`

  // How an error about a key begins: where("roles.rollout") is "run.yaml:3: roles.rollout".
  using Where = std::function<std::string(const char* key)>;
  // Throws ConfigError for a rank that is named twice, for lists that `tensor` does not divide, and
  // where two roles divide their ranks differently.
  void check_names(const Where& where) const;
  // The ranks of `ranks` that train, ascending. Throws ConfigError for ranks beyond that number,
  // and where none is left to train.
  std::vector<int> training(int64_t ranks, const Where& where) const;
  // The ranks that do not train.
  std::vector<int> serving() const;
  // The ranks that hold a model together with this one, which has a role: the first of them leads.
  std::vector<int> group_of(int64_t rank) const;
  // The first rank of each group of a role's ranks.
  std::vector<int64_t> leaders(const std::vector<int64_t>& role) const;
};

}  // namespace temper::dist
