#include "temper/check/check_list.h"

#include <doctest/doctest.h>

#include <stdexcept>

#include "temper/base/error.h"

using namespace temper;
using namespace temper::checks;

TEST_CASE("an error is a failure with its message, without a stack trace") {
  CheckList list;
  CHECK(list.run("good", [] { return Finding::pass("fine", {{"rows", 3}}); }));
  CHECK(list.run("odd", [] { return Finding::warn("hm"); }));
  CHECK_FALSE(list.failed());
  CHECK_FALSE(list.run("bad", []() -> Finding { throw DataError("rows.jsonl:3: no"); }));
  CHECK_FALSE(list.run("torch", []() -> Finding {
    throw std::runtime_error("sizes differ\nException raised from f at g.cpp:1");
  }));
  CHECK(list.failed());
  REQUIRE(list.checks().size() == 4);
  CHECK(list.checks()[0].finding.values.at("rows") == 3);
  CHECK(std::string(name_of(list.checks()[1].finding.status)) == "warn");
  CHECK(list.checks()[2].finding.message == "rows.jsonl:3: no");
  CHECK(list.checks()[3].finding.message == "sizes differ");
  CHECK(std::string(name_of(list.checks()[3].finding.status)) == "fail");
}

TEST_CASE("names of checks are unique, and what is skipped is a warning") {
  CheckList list;
  for (int i = 0; i < 3; ++i) list.add("rewards/exact", Finding::pass(""));
  list.skip("lengths", "there are no rows");
  CHECK(list.checks()[1].name == "rewards/exact-2");
  CHECK(list.checks()[2].name == "rewards/exact-3");
  CHECK(list.checks()[3].finding.status == Finding::Status::kWarn);
  CHECK(list.checks()[3].finding.message == "not checked: there are no rows");
  CHECK_FALSE(list.failed());
}
