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

TEST_CASE("no job is left behind where a thread that had one client's takes another's") {
  std::atomic<int> ran{0};
  {
    TurnQueue queue(3, 2);
    struct Gate {
      std::promise<void> begun, go_on;
    };
    Gate a1, a2, a3, b, c;
    const auto held = [&](const char* client, Gate& gate) {
      queue.run(client, [&] {
        gate.begun.set_value();
        gate.go_on.get_future().wait();
        ++ran;
      });
    };
    held("a", a1);
    held("a", a2);
    a1.begun.get_future().wait();
    a2.begun.get_future().wait();
    held("a", a3);
    std::promise<void> a4_begun;
    queue.run("a", [&] {
      a4_begun.set_value();
      ++ran;
    });
    queue.run("a", [&] { ++ran; });
    // The third thread has found nothing to do for "a" when it comes to this one, and "b" waits.
    held("c", c);
    c.begun.get_future().wait();
    held("b", b);
    a1.go_on.set_value();
    a3.begun.get_future().wait();
    a2.go_on.set_value();
    b.begun.get_future().wait();
    a3.go_on.set_value();
    a4_begun.get_future().wait();
    b.go_on.set_value();
    c.go_on.set_value();
  }  // waits for all that will run
  CHECK(ran == 7);
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
