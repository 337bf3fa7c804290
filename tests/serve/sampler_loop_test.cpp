// One engine for all clients: places for requests, and weights that change meanwhile.
#include "temper/serve/sampler_loop.h"

#include <doctest/doctest.h>

#include <future>
#include <thread>

#include "tests/generate/tiny.h"

using namespace temper;
using namespace temper::serve;

namespace {

std::vector<generate::Request> request() {
  generate::Request one;
  one.prompt = {3, 4};
  one.options.max_new_tokens = 2;
  return {one};
}

// A loop of a small model, with a thread that samples.
struct Loop {
  Loop() : model(generate::tiny::model(61, {2})), loop(*model, {}, nullptr, 2) {
    thread = std::thread([this] { loop.run([this] { return ends.load(); }); });
  }
  ~Loop() { end(); }
  void end() {
    ends = true;
    if (thread.joinable()) thread.join();
  }
  std::shared_ptr<Ticket> submit(Reservation reservation, std::function<void()> later = {}) {
    std::vector<generate::Request> one = request();
    return loop.submit(one, reservation, std::move(later));
  }

  std::unique_ptr<models::CausalLM> model;
  SamplerLoop loop;
  std::atomic<bool> ends{false};
  std::thread thread;
};

void wait_until(const std::function<bool()>& condition) {
  bool holds = false;
  for (int i = 0; i < 60000 && !holds; ++i) {
    holds = condition();
    if (!holds) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  CHECK(holds);
}

}  // namespace

TEST_CASE("requests that are parsed and not yet submitted count towards the limit") {
  Loop l;
  {
    const Reservation one = l.loop.reserve(), two = l.loop.reserve();
    CHECK_THROWS_AS(l.loop.reserve(), TooManyRequests);
    CHECK(l.loop.counts().open == 2);
    CHECK(l.loop.counts().refused == 1);
  }
  CHECK(l.loop.counts().open == 0);
  const auto ticket = l.submit(l.loop.reserve());
  REQUIRE(ticket);
  Piece piece;
  wait_until([&] { return ticket->take(piece); });
  CHECK(piece.finished);
  // A complete one, whose client has yet to read it, is open and takes no place.
  CHECK(l.loop.counts().open == 1);
  const Reservation one = l.loop.reserve(), two = l.loop.reserve();
  CHECK_THROWS_AS(l.loop.reserve(), TooManyRequests);
}

TEST_CASE("one address leaves others a quarter of the places") {
  const auto model = generate::tiny::model(61, {2});
  SamplerLoop loop(*model, {}, nullptr, 4), of_a_proxy(*model, {}, nullptr, 4, 4);
  std::vector<Reservation> held;
  for (int i = 0; i < 3; ++i) held.push_back(loop.reserve("10.0.0.1"));
  try {
    loop.reserve("10.0.0.1");
    FAIL("one address has all places");
  } catch (const TooManyRequests& e) {
    CHECK(e.limit == 3);
    CHECK(e.of_address);
  }
  CHECK(held[0].client != 0);
  {
    const Reservation other = loop.reserve("10.0.0.2");
    CHECK(other.client != held[0].client);
    CHECK_THROWS_AS(loop.reserve("10.0.0.2"), TooManyRequests);  // all are taken
  }
  held.pop_back();
  held.push_back(loop.reserve("10.0.0.1"));
  for (int i = 0; i < 3; ++i) held.push_back(of_a_proxy.reserve("10.0.0.1"));
  CHECK_NOTHROW(of_a_proxy.reserve("10.0.0.1"));
}

TEST_CASE("what requests hold in memory has a limit, of which one client has three quarters") {
  const auto model = generate::tiny::model(61, {2});
  SamplerLoop loop(*model, {}, nullptr, 4, 0, 100);
  const auto limit = [&](int64_t bytes, const char* client) {
    try {
      loop.hold(bytes, client);
    } catch (const TooManyRequests& e) {
      CHECK(e.of_bytes);
      return std::pair(e.limit, e.of_address);
    }
    return std::pair(int64_t{0}, false);
  };
  const std::pair<int64_t, bool> fits(0, false), of_client(75, true), of_all(100, false);
  CHECK(limit(76, "a") == of_client);
  auto one = loop.hold(60, "a");
  CHECK(limit(15, "a") == fits);
  CHECK(limit(16, "a") == of_client);
  CHECK(limit(40, "b") == fits);
  CHECK(limit(41, "b") == of_all);
  CHECK(limit(INT64_MAX, "b") == of_client);
  CHECK(loop.hold(0, "b") == nullptr);
  // With a request's place, until the samples are complete.
  Reservation place = loop.reserve("a");
  place.add(std::move(one));
  CHECK(limit(41, "b") == of_all);
  place.sampling.reset();
  CHECK(limit(75, "b") == fits);
  CHECK(limit(75, "a") == fits);
}

TEST_CASE("while the weights change a request waits without a thread, and counts") {
  Loop l;
  std::promise<void> begun, go_on;
  std::thread trainer([&] {
    l.loop.change_weights(
        [&] {
          begun.set_value();
          go_on.get_future().wait();
        },
        "new");
  });
  begun.get_future().wait();
  std::promise<void> told;
  Reservation reservation = l.loop.reserve();
  std::vector<generate::Request> asked = request();
  CHECK(l.loop.submit(asked, reservation, [&] { told.set_value(); }) == nullptr);
  CHECK(asked.at(0).prompt.size() == 2);  // nothing was taken
  const Reservation other = l.loop.reserve();
  CHECK_THROWS_AS(l.loop.reserve(), TooManyRequests);
  go_on.set_value();
  told.get_future().wait();
  trainer.join();
  const auto ticket = l.loop.submit(asked, reservation, {});
  REQUIRE(ticket);
  CHECK(ticket->weights() == "new");
  Piece piece;
  wait_until([&] { return ticket->take(piece); });
}

TEST_CASE("at the end who waits is told, and what has a place is completed before") {
  Loop l;
  Reservation reservation = l.loop.reserve();
  l.loop.refuse_new();
  CHECK_THROWS_AS(l.loop.reserve(), ServerStopped);
  {
    std::vector<generate::Request> asked = request();
    const auto ticket = l.loop.submit(asked, reservation, {});
    REQUIRE(ticket);
    Piece piece;
    wait_until([&] { return ticket->take(piece); });
  }
  l.end();
  Reservation none;
  CHECK_THROWS_AS(l.submit(none), ServerStopped);
}
