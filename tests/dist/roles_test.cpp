#include "temper/dist/roles.h"

#include <doctest/doctest.h>

#include "temper/base/error.h"

using namespace temper;
using dist::RolesSection;

namespace {

std::string where(const char* key) { return std::string("run.yaml:3: ") + key; }

// The ranks that train, or the error.
std::string training(const RolesSection& roles, int64_t ranks) {
  try {
    roles.check_names(where);
    std::string text;
    for (const int rank : roles.training(ranks, where)) text += std::to_string(rank) + " ";
    return text;
  } catch (const ConfigError& e) {
    return e.what();
  }
}

}  // namespace

TEST_CASE("those that have no role of their own train") {
  CHECK(training({}, 3) == "0 1 2 ");
  CHECK(training({{2, 3}, {}}, 4) == "0 1 ");
  CHECK(training({{2}, {1, 2}}, 4) == "0 3 ");
  const RolesSection roles{{2}, {1, 2}};
  CHECK(roles.serving() == std::vector<int>{1, 2});
  CHECK(roles.samples(2));
  CHECK_FALSE(roles.samples(1));
  CHECK(roles.scores(1));
  CHECK(roles.any());
  CHECK_FALSE(RolesSection().any());
}

TEST_CASE("ranks of a role that hold a model together are next to each other in its list") {
  const RolesSection roles{{5, 2, 3, 4}, {3, 4, 7, 6}, {}, 2};
  roles.check_names(where);
  CHECK(roles.group_of(5) == std::vector<int>{5, 2});
  CHECK(roles.group_of(4) == std::vector<int>{3, 4});
  CHECK(roles.group_of(6) == std::vector<int>{7, 6});
  CHECK(roles.leaders(roles.rollout) == std::vector<int64_t>{5, 3});
  CHECK(roles.leaders(roles.reference) == std::vector<int64_t>{3, 7});
  CHECK(roles.serving() == std::vector<int>{2, 3, 4, 5, 6, 7});
}

TEST_CASE("roles that no rank can have are refused") {
  const auto refused = [](const RolesSection& roles, int ranks, const std::string& words) {
    const std::string said = training(roles, ranks);
    CAPTURE(said);
    CHECK(said.find(words) != std::string::npos);
  };
  refused({{4}, {}}, 4, "run.yaml:3: roles.rollout: found rank 4, and the run's ranks are 0 to 3");
  refused({{}, {1}}, 1, "roles.reference: found rank 1, and the run has one rank");
  refused({{1, 2, 1}, {}}, 4, "run.yaml:3: roles.rollout: rank 1 is named twice");
  refused({{0, 1}, {}}, 2, "run.yaml:3: roles: all 2 ranks");
  refused({{}, {0}}, 2, "roles.reference: found rank 0");
  refused({{1, 2, 3}, {}, {}, 2}, 4,
          "roles.rollout: found 3 ranks, expected a multiple of roles.tensor");
  refused({{}, {}, {}, 2}, 4, "roles.tensor: found 2, and no rank has a role");
  refused({{}, {1}, {}, 2}, 4, "roles.reference: found 1 rank,");
  refused({{1, 2}, {2, 3}, {}, 2}, 4, "roles.reference: rank 2 has both roles");
  refused({{1, 2}, {2, 1}, {}, 2}, 4, "roles.reference: rank 1 has both roles");
}
