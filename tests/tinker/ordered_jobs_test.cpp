// Requests in the order of their numbers, each once.
#include "temper/tinker/ordered_jobs.h"

#include <doctest/doctest.h>

#include "temper/base/error.h"

using namespace temper;
using namespace temper::tinker;

namespace {

std::string run(OrderedJobs& jobs) {
  std::string order;
  while (Job* job = jobs.current()) {
    order += job->future;
    jobs.finish_current();
  }
  return order;
}

void add(OrderedJobs& jobs, int64_t seq, const std::string& name) {
  jobs.add(seq, name, {name, {}, 1}, 0);
}

}  // namespace

TEST_CASE("jobs run in the order of their numbers, whatever the order of arrival") {
  OrderedJobs jobs;
  add(jobs, 3, "c");
  add(jobs, 2, "b");
  CHECK(jobs.current() == nullptr);
  add(jobs, 1, "a");
  CHECK(run(jobs) == "abc");
  CHECK(jobs.next_number() == 4);
  CHECK(jobs.bytes() == 0);
}

TEST_CASE("a retry is known by its content, before and after its request was done") {
  OrderedJobs jobs;
  CHECK(!jobs.known(1, "a"));
  add(jobs, 1, "a");
  CHECK(jobs.known(1, "a") == "a");
  CHECK(run(jobs) == "a");
  CHECK(jobs.known(1, "a") == "a");
  CHECK_THROWS_AS(jobs.known(1, "other"), DataError);
  CHECK_THROWS_AS(jobs.known(0, "a"), DataError);
}

TEST_CASE("a refused request uses up its number, and its retry is refused alike") {
  OrderedJobs jobs;
  add(jobs, 2, "b");
  jobs.refuse(1, "bad", {400, "why"});
  CHECK(run(jobs) == "b");
  jobs.refuse(3, "worse", {422, "why not"});
  add(jobs, 4, "d");
  CHECK(run(jobs) == "d");
  bool refused = false;
  try {
    jobs.known(3, "worse");
  } catch (const OrderedJobs::Refused& e) {
    refused = e.answer.status == 422;
  }
  CHECK(refused);
}

TEST_CASE("two clients with one number: the second is refused, and the first one's request runs") {
  OrderedJobs jobs;
  CHECK(!jobs.known(1, "a"));
  CHECK(!jobs.known(1, "bad"));  // both have come before either is taken in
  add(jobs, 1, "a");
  jobs.refuse(1, "bad", {400, "why"});
  CHECK_THROWS_AS(jobs.known(1, "bad"), DataError);
  add(jobs, 2, "b");
  CHECK(run(jobs) == "ab");
}

TEST_CASE("numbers far ahead are refused, so that what is remembered is bounded") {
  OrderedJobs jobs;
  CHECK_THROWS_AS(jobs.known(65537, "far"), DataError);
  CHECK(!jobs.known(65536, "near"));
  jobs.refuse(65537, "far", {400, "why"});
  jobs.refuse(INT64_MAX, "far", {400, "why"});
  CHECK(jobs.next_number() == 1);
  add(jobs, 1, "a");
  CHECK(run(jobs) == "a");
  CHECK(!jobs.known(65537, "far"));
}

TEST_CASE("a number that comes late and is refused begins the wait for the next one anew") {
  OrderedJobs jobs;
  jobs.add(3, "c", {"c", {}, 1}, 100);
  jobs.refuse(1, "late", {400, "why"});
  CHECK(jobs.take_stuck(161, 60).empty());  // since when 2 is missing
  CHECK(jobs.take_stuck(200, 60).empty());
  add(jobs, 2, "b");
  CHECK(run(jobs) == "bc");
}

TEST_CASE("what waits for a number that never comes is taken out, and the next ones run") {
  OrderedJobs jobs;
  jobs.add(2, "b", {"b", {}, 1}, 100);
  CHECK(jobs.take_stuck(150, 60).empty());
  const std::vector<Job> stuck = jobs.take_stuck(161, 60);
  REQUIRE(stuck.size() == 1);
  CHECK(stuck[0].future == "b");
  add(jobs, 3, "c");
  CHECK(run(jobs) == "c");
}

TEST_CASE("a job that is cancelled uses up its number; its retry is known") {
  OrderedJobs jobs;
  for (const auto& [seq, name] : {std::pair(1, "a"), {2, "b"}, {4, "d"}}) add(jobs, seq, name);
  CHECK(!jobs.cancel("x"));
  CHECK(jobs.cancel("b")->future == "b");
  CHECK(!jobs.cancel("b"));
  CHECK(jobs.bytes() == 2);
  CHECK(jobs.known(2, "b") == "b");
  CHECK_THROWS_AS(jobs.known(2, "other"), DataError);
  CHECK(jobs.cancel("a")->future == "a");
  CHECK(jobs.current() == nullptr);
  add(jobs, 3, "c");
  CHECK(run(jobs) == "cd");
}
