// Results that clients fetch: waiting for them, once and again, and until they are dropped.
#include "temper/tinker/futures.h"

#include <doctest/doctest.h>

#include "temper/base/clock.h"
#include "temper/tinker/wire.h"

using namespace temper;
using namespace temper::tinker;

namespace {

struct Client {
  std::vector<http::Answer> got;
  Futures::Send send() {
    return [this](http::Answer answer) { got.push_back(std::move(answer)); };
  }
  void ask(Futures& futures, const std::string& id, const std::string& owner = "me") {
    futures.retrieve(owner, id, send());
  }
};

const Asker kAsker{"me", "session"};

}  // namespace

TEST_CASE("a client that waits is told when the result is there, and may ask again") {
  Futures futures({});
  Client client;
  const std::string id = futures.open(kAsker);
  client.ask(futures, id);
  CHECK(client.got.empty());
  futures.resolve(id, "bytes", Futures::Kind::kProtobuf);
  client.ask(futures, id);
  REQUIRE(client.got.size() == 2);
  for (const http::Answer& answer : client.got) {
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
  const std::string id = futures.open(kAsker);
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
  const std::string failed = futures.open(kAsker), forgotten = futures.open(kAsker);
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
  const std::string first = futures.open(kAsker), second = futures.open(kAsker),
                    open = futures.open(kAsker);
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

TEST_CASE("results that were fetched go first, then those of whoever holds most") {
  Futures futures({.bytes = 1000});
  Client client;
  const auto add = [&](const Asker& asker, size_t bytes) {
    const std::string id = futures.open(asker);
    futures.resolve(id, std::string(bytes, 'x'));
    return id;
  };
  const auto status = [&](const std::string& id, const std::string& owner) {
    client.ask(futures, id, owner);
    return client.got.back().status;
  };
  // Another key's flood costs that key its own results.
  const std::string quiet = add(kAsker, 100), fetched = add(kAsker, 100);
  CHECK(status(fetched, "me") == 200);
  std::vector<std::string> flood;
  for (int i = 0; i < 20; ++i)
    flood.push_back(add({"other", "session-" + std::to_string(i % 2)}, 300));
  CHECK(status(fetched, "me") == 410);
  CHECK(status(flood.front(), "other") == 410);
  CHECK(status(flood.back(), "other") == 200);
  CHECK(status(quiet, "me") == 200);
  // So does another session's with the same key.
  const std::string mine = add({"me", "small"}, 100);
  for (int i = 0; i < 20; ++i) add({"me", "large"}, 300);
  CHECK(status(mine, "me") == 200);
}

TEST_CASE("a future is its owner's, and its id cannot be guessed") {
  Futures futures({});
  Client client;
  const std::string one = futures.open(kAsker), next = futures.open(kAsker);
  // They have nothing in common, as counted ones have.
  size_t same = 0;
  REQUIRE(one.size() == next.size());
  CHECK(one.size() >= 24);
  for (size_t i = 0; i < one.size(); ++i) same += one[i] == next[i];
  CHECK(same < one.size() / 2);
  CHECK(futures.is_open("me", one));
  CHECK(!futures.is_open("other", one));
  futures.resolve(one, "{}");
  client.ask(futures, one, "other");
  CHECK(client.got.back().status == 404);
  futures.tick(steady_seconds() + 1e6);  // dropped: nor does another one learn of it then
  client.ask(futures, one, "other");
  CHECK(client.got.back().status == 404);
  client.ask(futures, one);
  CHECK(client.got.back().status == 410);
}

TEST_CASE("a sparse result takes the place of what it holds") {
  Futures futures({.bytes = 1 << 20});
  Client client;
  std::string body(size_t{8} << 20, '\0');
  body[1000] = 'x';
  const std::string other = futures.open({"other", "session"}), id = futures.open(kAsker);
  futures.resolve(other, std::string(1000, 'y'));
  futures.resolve(id, body, Futures::Kind::kSparseProtobuf);
  client.ask(futures, other, "other");
  CHECK(client.got.back().status == 200);
  client.ask(futures, id);
  const http::Answer& answer = client.got.back();
  CHECK(answer.status == 200);
  CHECK(answer.body.size() < 10000);
  REQUIRE(answer.headers.size() == 1);
  CHECK(answer.headers[0] == std::pair<std::string, std::string>("Content-Encoding", "zstd"));
  CHECK(decompress_zstd(answer.body, body.size()) == body);
}
