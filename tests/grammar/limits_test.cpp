// Schemas at the limits compile in bearable time, larger ones are refused before it is spent.
// Part of `make test-long`.
#include <doctest/doctest.h>

#include <string>
#include <tuple>
#include <vector>

#include "temper/base/error.h"
#include "temper/base/json.h"
#include "temper/grammar/grammar.h"
#include "tests/text/golden.h"

using namespace temper;
using namespace temper::grammar;

namespace {

struct LimitsCompiler {
  std::shared_ptr<const Tokenizer> tokenizer = golden_tokenizer("qwen2");
  Compiler compiler{tokenizer, static_cast<int64_t>(tokenizer->vocab_size()) + 1};

  // What is wrong with a schema; "" where it compiles.
  std::string refusal(const std::string& schema) {
    try {
      compiler.compile({Spec::Kind::kJsonSchema, schema, "schema"});
    } catch (const ConfigError& e) {
      return e.what();
    }
    return "";
  }
};

}  // namespace

TEST_CASE("schemas that would take minutes are refused, those at the limits are not") {
  LimitsCompiler f;
  const auto numbered = [](int n, const std::string& before, const std::string& after) {
    std::string out;
    for (int i = 0; i < n; ++i) out += (i > 0 ? "," : "") + before + std::to_string(i) + after;
    return out;
  };
  const auto of = [&](int values) { return "{\"enum\":[" + numbered(values, "\"v", "\"") + "]}"; };
  const auto object = [&](int listed, const std::string& rest, int required) {
    return "{\"type\":\"object\",\"properties\":{" +
           numbered(listed, "\"p", "\":{\"type\":\"null\"}") + "},\"required\":[" +
           numbered(required, "\"p", "\"") + "]" + rest + "}";
  };
  const auto nested = [](int depth) {
    std::string out = "{\"type\":\"null\"}";
    for (int i = 0; i < depth; ++i) out = "{\"type\":\"array\",\"items\":" + out + "}";
    return out;
  };
  const auto any_of = [&](int n) {
    return "{\"anyOf\":[" + numbered(n, "{\"const\":", "}") + "]}";
  };
  const auto pattern = [](size_t bytes) {
    return R"({"type":"string","pattern":")" + std::string(bytes, 'a') + "\"}";
  };
  const auto constant = [](size_t bytes) {  // of its JSON
    return R"({"const":")" + std::string(bytes - 2, 'a') + "\"}";
  };
  // A name, a value of `const` and one of `enum`, of so many bytes together.
  const auto literals = [](size_t bytes) {
    const std::string third(bytes / 3 - 2, 'b'), rest(bytes - 2 * (bytes / 3), 'n');
    return R"({"type":"object","properties":{")" + rest + R"(":{"anyOf":[{"const":")" + third +
           R"("},{"enum":[")" + third + "\"]}]}}}";
  };
  // Properties with names of so many bytes, of which an object has at most so many.
  const auto counted = [](int n, size_t bytes, int most) {
    Json properties = Json::object();
    for (int i = 0; i < n; ++i) {
      std::string name = std::to_string(i);
      name.resize(bytes, 'n');
      properties[name] = {{"type", "null"}};
    }
    return dump_json({{"type", "object"}, {"properties", properties}, {"maxProperties", most}});
  };
  const auto large_counts = [&](int n) {
    return "{\"anyOf\":[" + numbered(n, R"({"type":"string","maxLength":20)", "0}") + "]}";
  };
  const auto repeats = [](int n) {
    std::string text;
    for (int i = 0; i < n; ++i) text += "[a-c]{1,32}";
    return R"({"type":"string","pattern":")" + text + R"((d{31}){2,}e{9}"})";
  };
  const std::vector<std::tuple<std::string, std::string, const char*>> rows{
      {constant(65536), constant(65537),
       "too large: more than 65536 bytes of `const`, `enum` and names of properties in total (at "
       "#)"},
      {literals(65536), literals(65537), "more than 65536 bytes of `const`, `enum` and names"},
      {counted(100, 15, 43), counted(100, 15, 44), "more than 65536 bytes of `const`, `enum` and"},
      {large_counts(200), large_counts(201),
       "more than 200 values of minLength, maxItems and the like above 1024 (at #/anyOf/"},
      {repeats(256), repeats(257),
       "more than 256 repetitions with a bound of 32 or more, as in {32}, in patterns (at #)"},
      {pattern(16384), pattern(16385), "too large: more than 16384 bytes of patterns (at #)"},
      {of(5000), of(5001), "too large: more than 5000 values of `enum` in total (at #)"},
      {object(1000, "", 600), object(1001, "", 600), "more than 1000 properties in total (at #)"},
      {object(500, "", 0), object(501, "", 0), "more than 500 optional properties of one object"},
      {object(50, ",\"maxProperties\":3", 1), object(101, ",\"maxProperties\":3", 1),
       "more than 100 properties beside minProperties or maxProperties (at #)"},
      {nested(100), nested(101), "more than 100 schemas within each other (at #/items/items"},
      {any_of(1999), any_of(2001), "more than 2000 schemas (at #/anyOf/1999)"},
      {R"({"type":"string","maxLength":1000000})", R"({"type":"string","maxLength":1000001})",
       "`maxLength` at # is 1000001, expected at most 1000000"}};
  for (const auto& [good, large, refused] : rows) {
    CHECK(f.refusal(good) == "");
    const std::string found = f.refusal(large);
    CAPTURE(found);
    CHECK(found.find(refused) != std::string::npos);
    CHECK(found.size() < 300);
  }
}
