#include "temper/base/json.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "temper/base/error.h"

using namespace temper;

namespace {
std::string json_error(const std::string& text) {
  try {
    parse_json(text, "x.json");
  } catch (const DataError& e) {
    return e.what();
  }
  return "no error";
}

// {"k0": 0, ...}: `keys` distinct keys, each written `times` times.
std::string object_of(int keys, int times) {
  std::string text = "{";
  for (int t = 0; t < times; ++t)
    for (int k = 0; k < keys; ++k)
      text += (text.size() > 1 ? ",\"k" : "\"k") + std::to_string(k) + "\":" + std::to_string(t);
  return text + "}";
}
}  // namespace

TEST_CASE("JSON is read as written, keys in their order") {
  const std::string text =
      R"({"z":[1,-2,3.5,true,false,null,"\u00e9\n"],"a":{},"m":{"y":{"x":[]},"b":""},"":18446744073709551615})";
  const Json value = parse_json(text, "x.json");
  CHECK(dump_json(value) ==
        "{\"z\":[1,-2,3.5,true,false,null,\"\u00e9\\n\"],\"a\":{},\"m\":{\"y\":{\"x\":[]},"
        "\"b\":\"\"},\"\":18446744073709551615}");
  CHECK(value["z"][0].is_number_unsigned());
  CHECK(value["z"][1].is_number_integer());
  CHECK(value["z"][2].is_number_float());
  CHECK(parse_json(" 7 ", "x.json") == 7);
  CHECK(parse_json("\"a\"", "x.json") == "a");
  CHECK(parse_json("[]", "x.json").is_array());
  CHECK(value == Json::parse(text));
}

TEST_CASE("of a key that occurs twice the last value stands in the first one's place") {
  CHECK(dump_json(parse_json(R"({"b":1,"a":2,"b":{"c":3},"a":[4],"d":5,"b":6})", "x")) ==
        R"({"b":6,"a":[4],"d":5})");
}

// One search of all keys for each key would take minutes.
TEST_CASE("an object of very many keys is read, also where each occurs twice") {
  const Json value = parse_json(object_of(400'000, 2), "x.json");
  CHECK(value.size() == 400'000);
  CHECK(value.begin().key() == "k0");
  CHECK(value.begin().value() == 1);
  CHECK(std::prev(value.end()).key() == "k399999");
}

// A vector that copies what it holds when it grows would copy the innermost value at each level.
TEST_CASE("a large value deep inside is read without copying it at every level") {
  std::string items = "[0";
  for (int i = 0; i < 1'000'000; ++i) items += ",1";
  std::string text = items + "]";
  for (int level = 0; level < 500; ++level) text = "{\"a\":" + text + ",\"b\":0,\"c\":0}";
  const Json value = parse_json(text, "x.json");
  CHECK(value["a"]["a"]["b"] == 0);
}

TEST_CASE("what is no JSON is an error with place and cause") {
  CHECK(json_error("{\"a\": oops}") ==
        "x.json: not valid JSON: parse error at line 1, column 7: syntax error while parsing value "
        "- invalid literal; last read: '\"a\": o'");
  CHECK(json_error("").find("unexpected end of input") != std::string::npos);
  CHECK(json_error("[1, 2").find("unexpected end of input") != std::string::npos);
  CHECK(json_error("{} {}").find("expected end of input") != std::string::npos);
  CHECK(json_error("\"\xff\"").find("invalid") != std::string::npos);
  CHECK(json_error("1e999").find("number overflow parsing '1e999'") != std::string::npos);
  CHECK(json_error(std::string(513, '[')).find("deeper than 512") != std::string::npos);
}
