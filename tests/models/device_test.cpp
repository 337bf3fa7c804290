#include "temper/models/device.h"

#include <doctest/doctest.h>

#include <cstdlib>

#include "temper/base/error.h"

namespace temper::models {
namespace {

int64_t three() { return 3; }

// A kind of device that is never used.
const bool registered = [] {
  device_kinds().add({"three", {at::kHPU, &three}, "three devices, for a test"});
  return true;
}();

int64_t index_of(const char* device) { return device_for({.device = device}).index(); }

}  // namespace

TEST_CASE("ranks of a machine take its devices in turn, unless one is named") {
  REQUIRE(registered);
  CHECK(index_of("three") == 0);
  for (const auto& [rank, own] : {std::pair("0", 0), {"1", 1}, {"2", 2}, {"3", 0}, {"5", 2}}) {
    ::setenv("LOCAL_RANK", rank, 1);
    CHECK(index_of("three") == own);
    CHECK(index_of("three:1") == 1);
    CHECK(device_for({.device = "cpu"}).is_cpu());
  }
  ::unsetenv("LOCAL_RANK");
  CHECK_THROWS_AS(index_of("three:3"), ConfigError);
  CHECK(ranks_on_device(3, {at::kHPU, 0}) == 1);
  CHECK(ranks_on_device(4, {at::kHPU, 0}) == 2);
  CHECK(ranks_on_device(4, at::kCPU) == 4);
}

}  // namespace temper::models
