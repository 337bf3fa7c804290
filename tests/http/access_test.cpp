// Who may ask a server.
#include "temper/http/access.h"

#include <doctest/doctest.h>

using namespace temper::http;

namespace {

RequestHead with(const Headers& headers) {
  RequestHead head;
  head.headers = headers;
  return head;
}
int page(const AccessRules& rules, const Headers& headers) {
  const auto denial = check_page(rules, with(headers));
  return denial ? denial->status : 200;
}

}  // namespace

TEST_CASE("pages of other sites are refused") {
  AccessRules rules{"127.0.0.1", "", {}, {}};
  CHECK(page(rules, {{"host", "127.0.0.1:8000"}}) == 200);
  CHECK(page(rules, {{"host", "localhost:8000"}}) == 200);
  for (const char* origin : {"http://evil.example", "https://localhost.evil.example", "null",
                             "http://127.0.0.1.evil.example", "http://127.evil.example", "file://"})
    CHECK_MESSAGE(page(rules, {{"host", "localhost"}, {"origin", origin}}) == 403, origin);
  for (const char* origin :
       {"http://localhost:3000", "http://127.0.0.1", "https://LOCALHOST", "http://[::1]:9"})
    CHECK_MESSAGE(page(rules, {{"host", "localhost"}, {"origin", origin}}) == 200, origin);
  CHECK(page(rules, {{"host", "localhost"}, {"sec-fetch-site", "cross-site"}}) == 403);
  CHECK(page(rules, {{"host", "localhost"}, {"sec-fetch-site", "none"}}) == 200);
  rules.allowed_origins = {"https://App.example"};
  CHECK(page(rules, {{"host", "localhost"}, {"origin", "https://app.example"}}) == 200);
  CHECK(page(rules, {{"host", "localhost"},
                     {"origin", "https://app.example"},
                     {"sec-fetch-site", "cross-site"}}) == 200);
  CHECK(page(rules, {{"host", "localhost"}, {"origin", "https://app.example.org"}}) == 403);
  rules.allowed_origins = {"*"};
  CHECK(page(rules, {{"host", "localhost"}, {"origin", "null"}}) == 200);
  CHECK(cors_headers(with({{"origin", "https://a"}})).front().second == "https://a");
  CHECK(cors_headers(with({})).empty());
}

TEST_CASE("a server on loopback is asked by its own names") {
  AccessRules rules{"127.0.0.1", "", {}, {}};
  CHECK(page(rules, {{"host", "evil.example:8000"}}) == 421);
  CHECK(page(rules, {{"host", "127.0.0.1.evil.example"}}) == 421);
  CHECK(page(rules, {{"host", "192.168.0.1"}}) == 200);
  CHECK(page(rules, {{"host", "[::1]:8000"}}) == 200);
  CHECK(page(rules, {}) == 200);  // HTTP/1.0
  rules.allowed_hosts = {"box.lan"};
  CHECK(page(rules, {{"host", "BOX.lan:1"}}) == 200);
  CHECK(page({"127.0.0.1", "key", {}, {}}, {{"host", "evil.example"}}) == 200);
  CHECK(page({"0.0.0.0", "", {}, {}}, {{"host", "box.lan"}}) == 200);
}

TEST_CASE("keys") {
  const AccessRules rules{"0.0.0.0", "secret", {}, {}};
  CHECK_FALSE(check_key(rules, with({{"authorization", "Bearer secret"}})));
  for (const char* wrong : {"", "Bearer", "Bearer secre", "Bearer secrets", "bearer secret",
                            "secret", "Basic secret", "Bearer  secret"})
    CHECK_MESSAGE(check_key(rules, with({{"authorization", wrong}})), wrong);
  CHECK(check_key(rules, with({}))->status == 401);
  CHECK_FALSE(check_key({"0.0.0.0", "", {}, {}}, with({})));
  // Several.
  const AccessRules two{"0.0.0.0", "first, second,", {}, {}};
  for (const char* key : {"first", "second"})
    CHECK(!check_key(two, with({{"authorization", std::string("Bearer ") + key}})));
  for (const char* key : {"", " second", "first, second,", "first,", "firs"})
    CHECK(check_key(two, with({{"authorization", std::string("Bearer ") + key}})));
  CHECK(keys_of(" , ,").empty());
  CHECK(keys_of("one, two,one") == std::vector<std::string_view>{"one", "two"});
}

TEST_CASE("who has one of several keys is known by it") {
  const AccessRules rules{"0.0.0.0", "first, second,third", {}, {}};
  const auto owner = [&](const char* key) {
    return owner_of(rules, with({{"authorization", std::string("Bearer ") + key}}));
  };
  CHECK(owner("first") == 0);
  CHECK(owner("second") == 1);
  CHECK(owner("third") == 2);
  CHECK(owner_of({"0.0.0.0", "", {}, {}}, with({{"authorization", "Bearer second"}})) == 0);
}

TEST_CASE("types of bodies") {
  for (const char* type : {"", "application/json", "Application/JSON; charset=utf-8",
                           "application/x-www-form-urlencoded", "application/vnd.api+json"})
    CHECK_MESSAGE(!check_json(with({{"content-type", type}})), type);
  for (const char* type : {"text/plain", "multipart/form-data; boundary=x", "text/json", "json",
                           "application/octet-stream", "text/plain; application/json"})
    CHECK_MESSAGE(check_json(with({{"content-type", type}})), type);
  const std::string form = "application/x-www-form-urlencoded";
  CHECK(check_json(with({{"content-type", form}, {"origin", "http://localhost"}}))->status == 415);
  CHECK(check_json(with({{"content-type", form}, {"sec-fetch-site", "same-origin"}})));
}
