// Results that clients fetch: waiting for them, once and again, and until they are dropped.
#include "temper/tinker/futures.h"

#include <doctest/doctest.h>

#include "temper/base/clock.h"

using namespace temper;
using namespace temper::tinker;

namespace {

struct Client {
  std::vector<serve::Answer> got;
  Futures::Send send() {
    return [this](serve::Answer answer) { got.push_back(std::move(answer)); };
  }
  void ask(Futures& futures, const std::string& id) { futures.retrieve(id, send()); }
};

}  // namespace

TEST_CASE("a client that waits is told when the result is there, and may ask again") {
  Futures futures({});
  Client client;
  const std::string id = futures.open();
  client.ask(futures, id);
  CHECK(client.got.empty());
  futures.resolve(id, "bytes", true);
  client.ask(futures, id);
  REQUIRE(client.got.size() == 2);
  for (const serve::Answer& answer : client.got) {
    CHECK(answer.status == 200);
    CHECK(answer.body == "bytes");
    CHECK(answer.type == "application/x-protobuf");
  }
  futures.resolve(id, "others");  // a future has one result
  client.ask(futures, id);
  CHECK(client.got.back().body == "bytes");
}

TEST_CASE("who waits too long is told to ask again") {
  Futures futures({});
  Client client;
  const std::string id = futures.open();
  client.ask(futures, id);
  futures.tick(steady_seconds() + 30);
  CHECK(client.got.empty());
  futures.tick(steady_seconds() + 41);
  REQUIRE(client.got.size() == 1);
  CHECK(client.got[0].status == 408);
  CHECK(client.got[0].body.find("try_again") != std::string::npos);
}

TEST_CASE("failures have a category; results expire; unknown ids are not found") {
  Futures futures({.keep_seconds = 10, .unfetched_seconds = 20});
  Client client;
  const std::string failed = futures.open(), forgotten = futures.open();
  futures.fail(failed, "wrong shape", FailureCategory::kUser);
  futures.resolve(forgotten, "{}");
  client.ask(futures, failed);
  CHECK(client.got.back().status == 200);
  CHECK(client.got.back().body == R"({"error":"wrong shape","category":"user"})");
  futures.tick(steady_seconds() + 15);
  client.ask(futures, failed);
  CHECK(client.got.back().status == 410);
  futures.tick(steady_seconds() + 25);
  client.ask(futures, forgotten);
  CHECK(client.got.back().status == 410);
  for (const std::string id : {"", "nonsense", "0123-1"}) {
    client.ask(futures, id);
    CHECK(client.got.back().status == 404);
  }
  client.ask(futures, forgotten + "9");
  CHECK(client.got.back().status == 404);
}

TEST_CASE("results are bounded, and a server that ends tells those who wait") {
  Futures futures({.bytes = 100});
  Client client;
  const std::string first = futures.open(), second = futures.open(), open = futures.open();
  futures.resolve(first, std::string(80, 'x'));
  futures.resolve(second, std::string(80, 'y'));
  client.ask(futures, first);
  CHECK(client.got.back().status == 410);
  client.ask(futures, second);
  CHECK(client.got.back().status == 200);
  client.ask(futures, open);
  futures.close();
  CHECK(client.got.back().body.find("\"category\":\"server\"") != std::string::npos);
}
