#include "temper/base/registry.h"

#include <doctest/doctest.h>

#include "temper/base/error.h"

using namespace temper;

TEST_CASE("entries are found by name and listed in their order") {
  Registry<int> table("fruit", {{"pear", 1, "a pear"}, {"apple", 2, "an apple"}});
  const int& pear = table.find("pear");
  for (int i = 0; i < 100; ++i) table.add({"fruit" + std::to_string(i), i, ""});
  CHECK(table.find("fruit7") == 7);
  CHECK(&pear == &table.find("pear"));  // adding moved nothing
  CHECK(std::next(table.list().begin())->help == "an apple");
  CHECK(table.names()[0] == "pear");
  CHECK(table.contains("apple"));
  CHECK_FALSE(table.contains("app"));
}

namespace {

Registry<int>& herbs() {
  static Registry<int> table("herb");
  return table;
}
const Registered<int> thyme(&herbs, {"thyme", 3, ""});
const Registered<int> basil(&herbs, {"basil", 1, ""});
const Registered<int> mint(&herbs, {"mint", 2, ""});

}  // namespace

TEST_CASE("entries that register themselves are there when the program begins, by name") {
  CHECK(herbs().names() == std::vector<std::string>{"basil", "mint", "thyme"});
  CHECK(herbs().find("mint") == 2);
}

TEST_CASE("a taken name is refused and leaves the table as it was") {
  Registry<int> table("fruit", {{"pear", 1, ""}});
  CHECK_THROWS_WITH_AS(table.add({"pear", 2, ""}), "fruit `pear` exists already", ConfigError);
  CHECK(table.find("pear") == 1);
  CHECK(table.list().size() == 1);
  using Table = Registry<int>;
  CHECK_THROWS_AS(Table("fruit", {{"fig", 1, ""}, {"fig", 2, ""}}), ConfigError);
}

TEST_CASE("an unknown name is answered with what there is and the nearest") {
  const Registry<int> table("fruit", {{"pear", 1, ""}, {"apple", 2, ""}});
  CHECK_THROWS_WITH_AS(table.find("appel"),
                       "unknown fruit `appel`; expected one of pear, apple; did you mean `apple`?",
                       ConfigError);
  CHECK_THROWS_WITH_AS(
      table.find("p", "run.yaml:3: salad"),
      "run.yaml:3: salad: unknown fruit `p`; expected one of pear, apple; did you mean `pear`?",
      ConfigError);
  CHECK_THROWS_WITH_AS(table.find("mistral"),
                       "unknown fruit `mistral`; expected one of pear, apple", ConfigError);
  const std::string endless(10000, 'x');
  try {
    table.find(endless);
  } catch (const ConfigError& e) {
    CHECK(std::string(e.what()).size() < 200);
  }
  CHECK_THROWS_WITH_AS(Registry<int>("fruit", {}).find("fig"), "unknown fruit `fig`; there is none",
                       ConfigError);
}
