// Jobs of several clients, in turns.
#include "temper/serve/turn_queue.h"

#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <future>
#include <string>
#include <vector>

using namespace temper::serve;

TEST_CASE("clients take turns, whoever has added the most jobs") {
  std::vector<std::string> order;
  std::promise<void> begun, go_on;
  {
    TurnQueue queue;
    queue.run("a", [&] {
      begun.set_value();
      go_on.get_future().wait();
    });
    begun.get_future().wait();
    for (int i = 0; i < 4; ++i)
      queue.run("a", [&order, i] { order.push_back("a" + std::to_string(i)); });
    for (int i = 0; i < 2; ++i)
      queue.run("b", [&order, i] { order.push_back("b" + std::to_string(i)); });
    queue.run("c", [&order] { order.push_back("c0"); });
    go_on.set_value();
  }  // waits for all
  CHECK(order == std::vector<std::string>{"a0", "b0", "c0", "a1", "b1", "a2", "a3"});
}

TEST_CASE("a client has no more threads than it may, whatever it adds, and loses no job") {
  for (const int64_t most : {1, 2}) {
    std::atomic<int64_t> running{0}, highest{0}, ran{0};
    std::promise<void> other;
    {
      TurnQueue queue(4, most);
      std::promise<void> go_on;
      const std::shared_future<void> gone = go_on.get_future().share();
      for (int i = 0; i < 40; ++i)
        queue.run("a", [&, gone] {
          const int64_t now = ++running;
          if (now > highest) highest = now;
          gone.wait();
          --running;
          ++ran;
        });
      // There is a thread for another one, while all that "a" may have stand still.
      queue.run("b", [&] { other.set_value(); });
      other.get_future().wait();
      for (int i = 0; i < 20; ++i) queue.run("c", [&] { ++ran; });
      go_on.set_value();
    }
    CHECK(ran == 60);
    CHECK(highest <= most);
  }
}

TEST_CASE("jobs that have not begun can be taken out") {
  std::promise<void> begun, go_on;
  int ran = 0;
  {
    TurnQueue queue;
    queue.run("a", [&] {
      begun.set_value();
      go_on.get_future().wait();
    });
    begun.get_future().wait();
    queue.run("a", [&] { ++ran; });
    queue.run("b", [&] { ++ran; });
    auto taken = queue.take_waiting();
    CHECK(taken.size() == 2);
    go_on.set_value();
    queue.run("b", [&] { ran += 10; });
  }
  CHECK(ran == 10);
}
