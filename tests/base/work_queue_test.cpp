#include "temper/base/work_queue.h"

#include <doctest/doctest.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>

using namespace temper;

namespace {

using AtEnd = WorkQueueOptions::AtEnd;

// Holds up the threads that wait here until open() is called.
class Barrier {
 public:
  void open() { opened_.set_value(); }
  void wait() const { open_.wait(); }

 private:
  std::promise<void> opened_;
  std::shared_future<void> open_ = opened_.get_future().share();
};

// A job that has begun, and ends when it is told to.
class HeldJob {
 public:
  explicit HeldJob(WorkQueue& queue) {
    std::promise<void> begins;
    std::future<void> begun = begins.get_future();
    done_ = queue.run([this, begins = std::move(begins)]() mutable {
      begins.set_value();
      barrier_.wait();
    });
    begun.wait();
  }
  void end() {
    barrier_.open();
    done_.get();
  }

 private:
  Barrier barrier_;
  std::future<void> done_;
};

// Waits until the condition holds, which another thread brings about.
template <class Condition>
void wait_until(const Condition& condition) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  while (!condition()) {
    REQUIRE(std::chrono::steady_clock::now() < limit);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

bool is_dropped(std::future<void>& job) {
  try {
    job.get();
  } catch (const std::future_error& e) {
    return e.code() == std::future_errc::broken_promise;
  }
  return false;
}

}  // namespace

TEST_CASE("one thread runs jobs in the order in which they were added") {
  std::string order;
  WorkQueue queue;
  std::vector<std::future<int>> results;
  for (int i = 0; i < 100; ++i)
    results.push_back(queue.run([&order, i] {
      order += std::to_string(i) + " ";
      return i * i;
    }));
  std::string expected;
  for (int i = 0; i < 100; ++i) {
    CHECK(results[static_cast<size_t>(i)].get() == i * i);
    expected += std::to_string(i) + " ";
  }
  CHECK(order == expected);
}

TEST_CASE("a caller gets what its job throws, and later jobs run") {
  WorkQueue queue;
  std::future<int> fails = queue.run([]() -> int { throw std::runtime_error("a job's"); });
  queue.run([] { throw std::runtime_error("that nobody asks for"); });
  std::future<int> after = queue.run([] { return 7; });
  CHECK_THROWS_WITH_AS(fails.get(), "a job's", std::runtime_error);
  CHECK(after.get() == 7);
}

TEST_CASE("a job may hold what cannot be copied, and is destroyed before its future is ready") {
  WorkQueue queue;
  auto held = std::make_shared<int>(3);
  const std::weak_ptr<int> alive = held;
  SUBCASE("whatever it returns") {
    std::future<int> value = queue.run(
        [held = std::move(held), own = std::make_unique<int>(4)] { return *held + *own; });
    CHECK(queue.run([&alive] { return alive.expired(); }).get());
    CHECK(value.get() == 7);
  }
  SUBCASE("whatever it throws") {
    std::future<void> fails =
        queue.run([held = std::move(held)] { throw std::runtime_error("a job's"); });
    fails.wait();
    CHECK(alive.expired());
    CHECK_THROWS_AS(fails.get(), std::runtime_error);
  }
  SUBCASE("where it is dropped") {
    queue.stop();
    std::future<void> dropped = queue.run([held = std::move(held)] {});
    CHECK(alive.expired());
    CHECK(is_dropped(dropped));
  }
}

TEST_CASE("a queue that ends runs the jobs that wait") {
  std::atomic<int> done{0};
  {
    WorkQueue queue;
    for (int i = 0; i < 50; ++i) queue.run([&done] { ++done; });
    // A job that is run at the end may add others.
    queue.run([&] { queue.run([&done] { ++done; }); });
  }
  CHECK(done == 51);
}

TEST_CASE("a queue that drops jobs at its end finishes the one that is running alone") {
  std::atomic<bool> ran{false};
  auto queue = std::make_unique<WorkQueue>(WorkQueueOptions{.at_end = AtEnd::kDrop});
  HeldJob running(*queue);
  std::future<void> waiting = queue->run([&ran] { ran = true; });
  std::thread ends([&queue] { queue.reset(); });
  CHECK(is_dropped(waiting));  // while the first job is still running
  running.end();
  ends.join();
  CHECK_FALSE(ran);
}

TEST_CASE("a stopped queue drops the jobs that wait and those that come") {
  std::atomic<bool> ran{false};
  WorkQueue queue;
  HeldJob running(queue);
  std::future<void> waiting = queue.run([&ran] { ran = true; });
  queue.stop();
  CHECK(is_dropped(waiting));
  std::future<void> late = queue.run([&ran] { ran = true; });
  CHECK(is_dropped(late));
  running.end();
  CHECK_FALSE(ran);
}

TEST_CASE("where as many jobs wait as may, adding one waits, until stop()") {
  WorkQueue queue({.most_waiting = 2});
  HeldJob running(queue);
  queue.run([] {});
  queue.run([] {});
  std::atomic<int> added{0};
  std::atomic<bool> waits{false};
  std::thread adds([&] {
    queue.run([] {}, [&waits] { waits = true; });
    ++added;
  });
  wait_until([&] { return waits || added > 0; });
  CHECK(added == 0);
  std::future<void> third;
  SUBCASE("until a job is begun") {
    running.end();
    wait_until([&] { return added == 1; });
    third = queue.run([] {});
    third.get();
  }
  SUBCASE("until the queue is stopped") {
    queue.stop();
    wait_until([&] { return added == 1; });
    running.end();
  }
  adds.join();
}

TEST_CASE("a caller that waits for room may give up") {
  std::atomic<bool> ran{false};
  WorkQueue queue({.most_waiting = 1});
  HeldJob running(queue);
  std::future<void> waiting = queue.run([] {});
  CHECK_THROWS_WITH_AS(
      queue.run([&ran] { ran = true; }, [] { throw std::runtime_error("no longer"); }), "no longer",
      std::runtime_error);
  int calls = 0;
  // Called again and again until there is room.
  std::future<int> last = queue.run([] { return 5; },
                                    [&] {
                                      if (++calls == 2) running.end();
                                    });
  CHECK(last.get() == 5);
  CHECK(calls >= 2);
  CHECK_FALSE(ran);
}

TEST_CASE("several threads run jobs at once, each prepared first") {
  std::atomic<int> prepared{0};
  std::mutex mutex;
  std::set<std::thread::id> threads;
  WorkQueue queue({.threads = 3, .on_start = [&prepared] { ++prepared; }});
  // None of the three jobs ends before all have begun.
  std::atomic<int> here{0};
  std::vector<std::future<void>> jobs;
  for (int i = 0; i < 3; ++i)
    jobs.push_back(queue.run([&] {
      {
        const std::lock_guard lock(mutex);
        threads.insert(std::this_thread::get_id());
      }
      ++here;
      wait_until([&] { return here == 3; });
    }));
  for (std::future<void>& job : jobs) job.get();
  CHECK(threads.size() == 3);
  CHECK(prepared == 3);
}

TEST_CASE("where the system has no more threads, jobs wait for those that there are") {
  WorkQueue queue({.threads = 4});
  pthread_attr_t before, large;
  pthread_getattr_default_np(&before);
  pthread_attr_init(&large);
  REQUIRE(pthread_attr_setstacksize(&large, size_t{1} << 46) == 0);  // more than there is
  pthread_setattr_default_np(&large);
  HeldJob running(queue);
  std::vector<std::future<int>> results;
  for (int i = 0; i < 5; ++i) results.push_back(queue.run([i] { return i; }));
  pthread_setattr_default_np(&before);
  running.end();
  for (int i = 0; i < 5; ++i) CHECK(results[static_cast<size_t>(i)].get() == i);
}
