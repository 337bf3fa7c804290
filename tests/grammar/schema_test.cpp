// Which JSON schemas are refused, with what words, and that random completions of the others obey
// them.
#include <arpa/inet.h>
#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>

#include "temper/base/error.h"
#include "temper/base/json.h"
#include "temper/grammar/grammar.h"
#include "temper/grammar/tagged.h"
#include "temper/text/unicode.h"
#include "tests/text/golden.h"

using namespace temper;
using namespace temper::grammar;

namespace {

struct Qwen {
  std::shared_ptr<const Tokenizer> tokenizer = golden_tokenizer("qwen2");
  int32_t end = static_cast<int32_t>(tokenizer->vocab_size());  // an end token behind them
  Compiler compiler{tokenizer, end + 1};
};

std::string refusal(Qwen& f, const std::string& schema) {
  try {
    f.compiler.compile({Spec::Kind::kJsonSchema, schema, "schema"});
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "";
}

// A completion of random tokens, of which those that close something are likelier.
std::string walk(Qwen& f, const std::string& schema, std::mt19937& random) {
  Matcher at(f.compiler.compile({Spec::Kind::kJsonSchema, schema, "schema"}), {f.end});
  std::vector<int32_t> ids, closing{f.end};
  for (const char* text : {"\"", "}", "]", "\"}", "0", ":"})
    for (const int32_t id : f.tokenizer->encode(text)) closing.push_back(id);
  while (!at.ended()) {
    std::vector<int32_t> allowed;
    for (const int32_t id : closing)
      if (at.allows(id) && random() % 2) allowed.push_back(id);
    if (allowed.empty())
      for (int32_t id = 0; id <= f.end; ++id)
        if (at.allows(id)) allowed.push_back(id);
    REQUIRE(!allowed.empty());
    REQUIRE(ids.size() < 2000);
    ids.push_back(allowed[random() % allowed.size()]);
    at.accept(ids.back());
    if (ids.back() == f.end) ids.pop_back();
  }
  return f.tokenizer->decode(ids, true);
}

bool is_type(const Json& value, const std::string& type) {
  const std::string name = value.type_name();
  if (type == "integer") return value.is_number() && value == std::floor(value.get<double>());
  return name == type;
}

std::wstring wide(const std::string& utf8) {
  std::wstring out;
  for (size_t i = 0; i < utf8.size();) out += static_cast<wchar_t>(next_char(utf8, i));
  return out;
}
bool matches(const std::string& text, const std::string& pattern) {
  return std::regex_search(wide(text), std::wregex(wide(pattern)));
}

// Whether a value obeys a schema: JSON Schema's own definitions, for the keywords of the table.
bool obeys(const Json& v, const Json& s, const Json& root) {
  if (s.is_boolean()) return s.get<bool>();
  const auto each = [&](const char* key, const auto& holds) {
    return !s.contains(key) || holds(s[key]);
  };
  const auto number_of = [&](const Json& list) {
    return std::count_if(list.begin(), list.end(),
                         [&](const Json& o) { return obeys(v, o, root); });
  };
  const auto length = [](const std::string& text) {
    return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
  };
  bool good =
      each("$ref",
           [&](const Json& uri) {
             const std::string at = uri.get<std::string>().substr(1);
             return obeys(v, root[Json::json_pointer(at)], root);
           }) &&
      each("const", [&](const Json& c) { return v == c; }) &&
      each("enum", [&](const Json& e) { return std::count(e.begin(), e.end(), v) > 0; }) &&
      each("anyOf", [&](const Json& list) { return number_of(list) > 0; }) &&
      each("oneOf", [&](const Json& list) { return number_of(list) == 1; }) &&
      each("allOf", [&](const Json& list) { return number_of(list) == std::ssize(list); }) &&
      each("type", [&](const Json& type) {
        const Json list = type.is_array() ? type : Json::array({type});
        return std::any_of(list.begin(), list.end(), [&](auto& t) { return is_type(v, t); });
      });
  if (v.is_number())
    good = good && each("minimum", [&](auto& m) { return v >= m; }) &&
           each("maximum", [&](auto& m) { return v <= m; }) &&
           each("exclusiveMinimum", [&](auto& m) { return v > m; }) &&
           each("exclusiveMaximum", [&](auto& m) { return v < m; }) &&
           each("multipleOf",
                [&](auto& m) { return std::fmod(v.get<double>(), m.template get<double>()) == 0; });
  if (v.is_string())
    good = good && each("minLength", [&](auto& m) { return length(v) >= m; }) &&
           each("maxLength", [&](auto& m) { return length(v) <= m; }) &&
           each("pattern", [&](auto& p) {
             return matches(v.get<std::string>(), p.template get<std::string>());
           });
  const auto size = static_cast<int64_t>(v.size());
  if (v.is_array()) {
    good = good && each("minItems", [&](auto& m) { return size >= m; }) &&
           each("maxItems", [&](auto& m) { return size <= m; });
    const Json prefix = s.value("prefixItems", Json::array());
    for (size_t i = 0; i < v.size(); ++i)
      good =
          good && obeys(v[i], i < prefix.size() ? prefix[i] : s.value("items", Json(true)), root);
  }
  if (!v.is_object()) return good;
  good = good && each("minProperties", [&](auto& m) { return size >= m; }) &&
         each("maxProperties", [&](auto& m) { return size <= m; });
  for (const Json& name : s.value("required", Json::array())) good = good && v.contains(name);
  const Json patterns = s.value("patternProperties", Json::object());
  for (const auto& [name, value] : v.items()) {
    bool known = s.contains("properties") && s["properties"].contains(name);
    if (known) good = good && obeys(value, s["properties"][name], root);
    for (const auto& [pattern, schema] : patterns.items())
      if (matches(name, pattern)) {
        known = true;
        good = good && obeys(value, schema, root);
      }
    if (!known) good = good && obeys(value, s.value("additionalProperties", Json(true)), root);
    good = good && obeys(name, s.value("propertyNames", Json(true)), root);
  }
  return good;
}

// {schema, part of the message}; {schema, ""}: accepted.
struct Row {
  const char *schema, *refused;
};

const Row kRows[] = {
    // required
    {R"({"type":"object","properties":{"a":{"type":"null"}},"required":["a"]})", ""},
    {R"({"type":"object","properties":{"a":{"type":"null"}},"required":["a","b"]})",
     "schema: not supported: the keyword `required` at # names \"b\", which `properties` does not"},
    {R"({"type":"object","required":["b"],"additionalProperties":{"type":"null"}})", "names \"b\""},
    {R"({"type":"object","required":[5]})",
     "`required` at #: found 5, expected the name of a prop"},
    {R"({"type":"object","required":"a"})",
     "`required` at #: found \"a\", expected a list of names"},
    {R"({"required":["a"]})",
     "the keyword `required` without `type` at #; add \"type\": \"object\""},
    // beside anyOf, oneOf, $ref, allOf
    {R"({"anyOf":[{"type":"null"},{"type":"boolean"}],"title":"t","default":null})", ""},
    {R"({"anyOf":[{"type":"string","maxLength":3},{"type":"integer"}],"minLength":3})",
     "the keyword `minLength` beside `anyOf` at #"},
    {R"({"properties":{"a/b":{"oneOf":[{"type":"null"}],"enum":[1]}}})",
     "`oneOf` beside `enum` at #/properties/a~1b"},
    {R"({"oneOf":[{"const":1},{"const":2}],"type":"integer"})", ""},
    {R"({"oneOf":[{"const":1},{"const":"x"}],"type":"integer"})",
     "the keyword `type` beside `oneOf`"},
    {R"({"anyOf":[{"properties":{"a":{}},"required":["a"]}],"type":"object"})",
     "`type` beside `anyOf`"},
    {R"({"oneOf":[{"type":"integer"},{"type":"number"}]})",
     "schema: not supported: oneOf with overl"},
    {R"({"$ref":"#/$defs/n","description":"d","$defs":{"n":{"type":"integer","maximum":3}}})", ""},
    {R"({"$ref":"#/$defs/n","minimum":2,"$defs":{"n":{"type":"integer","maximum":3}}})",
     "the keyword `minimum` beside `$ref` at #"},
    {R"({"$ref":"#/other/n","other":{"n":{"type":"array","items":{"not":{}}}}})",
     "`not` at #/other/n/items"},
    {R"({"$ref":"http://a/b"})",
     "`$ref` at #: found \"http://a/b\", expected a place in this schema"},
    {R"({"$ref":"#/$defs/x"})", "`$ref` at #: there is no \"#/$defs/x\""},
    {R"({"allOf":[{"type":"integer","minimum":5}],"description":"d"})", ""},
    {R"({"allOf":[{"type":"integer"}],"minimum":5})", "the keyword `minimum` beside `allOf` at #"},
    {R"({"allOf":[{"type":"integer"},{"minimum":5}]})", "the keyword `allOf` with 2 schemas at #"},
    {R"({"anyOf":[]})", "`anyOf` at #: found [], expected a list, not empty"},
    // beside enum and const
    {R"({"enum":["a","b",1],"type":["string","integer"],"examples":[3]})", ""},
    {R"({"enum":["a",1],"type":"string"})", "the keyword `type` beside `enum` at #"},
    {R"({"const":1.5,"type":"integer"})", "the keyword `type` beside `const` at #"},
    {R"({"const":2.0,"type":"integer"})", ""},
    {R"({"enum":["a","abcdef"],"minLength":3})",
     "the keyword `minLength` beside `enum` at #; leave out"},
    {R"({"const":3,"enum":[4]})", "the keyword `enum` beside `const` at #"},
    // without a type
    {R"({"maximum":3})", "the keyword `maximum` without `type` at #; add \"type\": \"number\""},
    {R"({"items":{"minLength":3}})", "the keyword `minLength` without `type` at #/items"},
    {R"({"patternProperties":{"a":{}}})", "the keyword `patternProperties` without `type`"},
    {R"({"properties":{"a":{"type":"null"}},"required":["a"]})", ""},
    {R"({"additionalProperties":{"type":"null"},"maxProperties":2})", ""},
    {R"({"items":{"type":"integer","maximum":9,"minimum":-2},"minItems":1,"maxItems":3})", ""},
    {R"({"type":["string","integer"],"maxLength":4,"minimum":7,"maximum":80})", ""},
    {R"({"type":"string","maximum":3,"maxLength":2})", ""},
    {R"({"type":"nul"})", "`type` at #: found \"nul\", expected null, boolean, object"},
    {R"({"type":[]})", "`type` at #: found [], expected"},
    // values
    {R"({"type":"integer","multipleOf":8})", ""},
    {R"({"type":"integer","minimum":-20,"maximum":90,"multipleOf":6})", ""},
    {R"({"type":"number","exclusiveMinimum":-1.5,"maximum":2.25})", ""},
    {R"({"type":"number","multipleOf":0.5})", "multipleOf is not supported for type:number"},
    {R"({"type":"string","pattern":"^[a-c]{2,4}-(x|y)$"})", ""},
    // what JSON writes as an escape
    {R"({"type":"string","pattern":"\"a\""})", ""},
    {R"({"type":"string","pattern":"^(yes|\"no\"|a\\\\b|c\\nd|\\t|\\x01|\\cB)$"})", ""},
    {R"({"type":"string","pattern":"^[\"\\\\\n\u0007]{3}$"})", ""},
    {R"({"type":"string","pattern":"^[^a-y]{2}$"})", ""},
    {R"({"type":"string","pattern":"^.{3}\\S$"})", ""},
    {R"({"type":"string","pattern":"^\u00e9.\\W[^\\]^-]?$"})", ""},
    {R"({"type":"string","pattern":"^[\\t \\d-]{1,3}(?:\\D|x)$"})", ""},
    {R"({"type":"string","pattern":"^[0-5]\\d(?:\\.\\d{1,9})?(?:Z|[+-]\\d)$"})", ""},
    {R"({"type":"string","pattern":"[\\ud800-\\udfff]"})",
     "schema: at #: `[\\ud800-\\udfff]` in a pattern matches no character of a JSON text"},
    {R"-({"type":"string","pattern":"a(?=.)"})-", "Lookahead is not supported"},
    {R"({"type":"string","pattern":".$b"})", "'$' should be at the end"},
    {R"({"type":"object","patternProperties":{"^[\"\\\\]$":{"type":"object","patternProperties":{
         "^\\n\\t$":{"type":"string","pattern":"^\"$"}}}},"minProperties":1})",
     ""},
    {R"({"type":"object","propertyNames":{"type":"string","pattern":"^\\W\n$"},"minProperties":1,
         "additionalProperties":{"type":"null"}})",
     ""},
    {R"({"type":"array","items":{"$ref":"#/p/patternProperties/\"/items"},
         "p":{"type":"object","patternProperties":{"\"":{"items":{"type":"null"}}}}})",
     "`$ref` at #/items into `patternProperties`"},
    {R"({"type":"object","properties":{"q\"\\\n":{"const":"\u0000\u001f\"\\\n\u007f"}},
         "required":["q\"\\\n"]})",
     ""},
    {R"({"enum":["\t","\"","\\",{"\n":["\u0001"]},1e300,-0.1,9007199254740993]})", ""},
    {R"({"type":"string","pattern":"a","format":"date"})", "`pattern` beside `format` at #"},
    {R"({"type":"string","pattern":"a+","minLength":3})", "`minLength` beside `pattern` at #"},
    {R"({"type":"string","format":"date"})", ""},
    {R"({"type":"string","format":"isbn"})", "the keyword `format` at # with \"isbn\""},
    {R"({"type":"string","pattern":5})", "`pattern` at #: found 5, expected a string"},
    {R"({"type":"string","minLength":2,"maxLength":5})", ""},
    {R"({"type":"string","minLength":-2})", "`minLength` at #: found -2, expected a whole number"},
    {R"({"type":"array","prefixItems":[{"type":"null"},{"enum":[1,2]}],"items":false,"minItems":2})",
     ""},
    {R"({"type":"array","items":{"type":"null"},"uniqueItems":true})", "`uniqueItems` at #"},
    {R"({"type":"array","items":3})", "found 3 at #/items, expected a schema"},
    // names
    {R"({"type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"},"c":{"type":"null"}},
         "required":["b"],"minProperties":2,"maxProperties":2})",
     ""},
    {R"({"type":"object","properties":{"aa":{"type":"null"}},"required":["aa"],
         "additionalProperties":{"type":"boolean"}})",
     ""},
    {R"({"type":"object","minProperties":2,"additionalProperties":{"type":"null"}})",
     "the keyword `minProperties` above 1 at #"},
    {R"({"type":"object","patternProperties":{"^[a-c]+$":{"type":"null"}},"minProperties":1})", ""},
    {R"({"type":"object","patternProperties":{"a":{},"b":{}}})",
     "`patternProperties` with 2 patterns"},
    {R"({"type":"object","patternProperties":{"a":{}},"properties":{"a":{}}})",
     "`patternProperties` beside `properties`"},
    {R"({"type":"object","propertyNames":{"type":"string","pattern":"^[xy]$"},"maxProperties":3})",
     ""},
    {R"({"type":"object","propertyNames":{"enum":["k","l"]},"additionalProperties":{"type":"null"}})",
     ""},
    {R"({"type":"object","propertyNames":{"enum":["k",1]}})", "the keyword `propertyNames` at #"},
    {R"({"type":"object","propertyNames":{"type":"string"},"additionalProperties":false})",
     "`propertyNames` beside `additionalProperties`"},
    // XGrammar takes these pairs for the same.
    {R"({"type":"object","properties":{"a":{"type":"object","properties":{"title":{"type":"null"}},
         "required":["title"]},"b":{"type":"object","properties":{"title":{"type":"boolean"}},
         "required":["title"]}},"required":["a","b"]})",
     ""},
    {R"({"type":"array","prefixItems":[{"const":{"default":1}},{"const":{"default":2}}],"minItems":2,
         "items":false})",
     ""},
    {R"({"dependencies":{"a":["b"]}})", "the keyword `dependencies` at #"},
};

}  // namespace

TEST_CASE("schemas are refused by keyword and place, or completions obey them") {
  Qwen f;
  std::mt19937 random(1);
  for (const Row& row : kRows) {
    CAPTURE(std::string(row.schema));
    const std::string found = refusal(f, row.schema);
    CAPTURE(found);
    CHECK(found.empty() == (row.refused[0] == '\0'));
    CHECK(found.find(row.refused) != std::string::npos);
    CHECK((found.empty() || found.starts_with("schema: ")));
    if (!found.empty()) continue;
    const Json schema = parse_json(row.schema, "schema");
    for (int i = 0; i < 12; ++i) {
      const std::string text = walk(f, row.schema, random);
      CAPTURE(text);
      CHECK(obeys(parse_json(text, "walk"), schema, schema));
    }
  }
}

namespace {

// Whether a completion may be this text.
bool admits(Qwen& f, const std::string& schema, const std::string& text) {
  Matcher at(f.compiler.compile({Spec::Kind::kJsonSchema, schema, "schema"}), {f.end});
  for (const int32_t id : f.tokenizer->encode(text)) {
    if (!at.allows(id)) return false;
    at.accept(id);
  }
  return at.allows(f.end);
}

bool is_date(const std::string& text) {
  int year = 0, month = 0, day = 0, end = 0;
  if (std::sscanf(text.c_str(), "%4d-%2d-%2d%n", &year, &month, &day, &end) != 3) return false;
  const std::chrono::year_month_day date{std::chrono::year(year),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  return end == 10 && text.size() == 10 && year > 0 && date.ok();
}
bool is_time(const std::string& text) {
  return std::regex_match(
      text,
      std::regex("([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d+)?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"));
}
bool is_address(int family, const std::string& text) {
  unsigned char bytes[16];
  return inet_pton(family, text.c_str(), bytes) == 1;
}
bool is_hostname(const std::string& text) {
  return text.size() <= 253 &&
         std::regex_match(text, std::regex("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
                                           "(\\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*"));
}

// {format, how it is checked, texts that it admits, texts that it does not}
struct FormatRow {
  const char* format;
  bool (*holds)(const std::string&);
  std::vector<std::string> good, bad;
};

const FormatRow kFormatRows[] = {
    {"date",
     is_date,
     {"2024-02-29", "2000-02-29", "1999-12-31", "2023-02-28", "0001-01-01", "2400-02-29"},
     {"2023-02-29", "2024-02-30", "1900-02-29", "2024-04-31", "2024-13-01", "2024-00-10",
      "2024-1-01", "0000-01-01", "2024-01-00"}},
    {"time",
     is_time,
     {"00:00:00Z", "23:59:59.123+02:00"},
     {"24:00:00Z", "12:60:00Z", "12:00:60Z", "12:00:00", "12:00Z"}},
    {"date-time",
     [](const std::string& t) {
       return t.size() > 11 && is_date(t.substr(0, 10)) && t[10] == 'T' && is_time(t.substr(11));
     },
     {"2024-02-29T00:00:00Z", "2023-12-31T23:59:59.5-08:00"},
     {"2023-02-29T00:00:00Z", "2024-02-29 00:00:00Z"}},
    {"ipv4",
     [](const std::string& t) { return is_address(AF_INET, t); },
     {"0.0.0.0", "255.255.255.255", "1.20.199.249"},
     {"028.1.1.1", "01.1.1.1", "256.1.1.1", "1.1.1", "1.1.1.1.1", "00.0.0.0"}},
    {"ipv6",
     [](const std::string& t) { return is_address(AF_INET6, t); },
     {"::", "::1", "1:2:3:4:5:6:7:8", "fe80::1", "1::", "::ffff:1.2.3.4", "64:ff9b::1.2.3.4"},
     {"1:2:3:4:5:6:7", "1::2::3", "12345::", "::1.2.3", "::01.2.3.4", ":1"}},
    {"hostname", is_hostname, {"a", "a.b-c.example.com", "xn--e1afmkfd.com"}, {"-a", "a-", "a..b"}},
    {"email",
     [](const std::string& t) {
       return t.find('@') <= 64 && t.find('@') == t.rfind('@') &&
              is_hostname(t.substr(t.find('@') + 1));
     },
     {"a@b.c", "first.last+tag@mail.example.com"},
     {"a@b", "@b.c", "a b@c.d", "\\\"a\\\"@b.c", "a..b@c.d"}},
    {"json-pointer",
     [](const std::string& t) { return t.empty() || t[0] == '/'; },
     {"", "/a/~0~1/0", "/\\\"\\\\\\n"},
     {"a", "/~2", "/\"", "/\\q"}},
    {"relative-json-pointer",
     [](const std::string& t) { return std::isdigit(static_cast<unsigned char>(t[0])) != 0; },
     {"0", "1#", "2/a"},
     {"01", "#", "/a"}},
    {"uuid",
     [](const std::string& t) { return t.size() == 36; },
     {"123e4567-e89b-12d3-a456-426614174000"},
     {"123e4567"}},
    {"duration",
     [](const std::string& t) { return t[0] == 'P' && t.size() > 2; },
     {"P1D", "PT1H30M", "P1Y2M3DT4H5M6S", "P2W"},
     {"P", "PT", "1D", "P1W2D"}},
    {"uri",
     [](const std::string& t) { return t.find(':') != std::string::npos; },
     {"http://a.b/c?d=e#f", "mailto:a@b.c"},
     {"a b", "http://a b", "//a"}},
    {"uri-reference",
     [](const std::string& t) { return t.find_first_of(" \"\\") == std::string::npos; },
     {"/a", "a/b?c", "#f"},
     {"a b"}},
    {"uri-template",
     [](const std::string& t) { return t.find_first_of(" \"\\") == std::string::npos; },
     {"http://a/{b}{?c,d*}"},
     {"{", "a b"}},
};

}  // namespace

TEST_CASE("formats are what their names say, and JSON") {
  Qwen f;
  std::mt19937 random(2);
  for (const FormatRow& row : kFormatRows) {
    CAPTURE(std::string(row.format));
    const std::string schema = str(R"({"type":"string","format":")", row.format, "\"}");
    for (const std::string& text : row.good) {
      CAPTURE(text);
      CHECK(admits(f, schema, "\"" + text + "\""));
    }
    for (const std::string& text : row.bad) {
      CAPTURE(text);
      CHECK_FALSE(admits(f, schema, "\"" + text + "\""));
    }
    for (int i = 0; i < 25; ++i) {
      const std::string text = walk(f, schema, random);
      CAPTURE(text);
      CHECK(row.holds(parse_json(text, "walk").get<std::string>()));
    }
  }
}

TEST_CASE("the functions of a request share the limit of one schema") {
  const auto tags = [](int n) {
    std::vector<Tag> out;
    for (int i = 0; i < n; ++i)
      out.push_back({"<call>", Json{{"const", std::string(20000, 'a')}}, "</call>"});
    return out;
  };
  CHECK_NOTHROW(tagged(tags(3), "\n", false, "tools"));
  CHECK_THROWS_WITH_AS(tagged(tags(4), "\n", false, "tools"),
                       doctest::Contains("tools: too large: more than 65536 bytes"), ConfigError);
  const auto refusal_of = [](const char* schema) {
    const std::vector<Tag> two(2, {"<call>", parse_json(schema, "schema"), "</call>"});
    try {
      tagged(two, "\n", false, "tools");
    } catch (const ConfigError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  const auto pattern = [](const char* part, int n) {
    Json schema{{"type", "string"}, {"pattern", ""}};
    for (int i = 0; i < n; ++i) schema["pattern"].get_ref<std::string&>() += part;
    return dump_json(schema);
  };
  const auto list = [](const char* key, int n, const char* each) {
    Json all = Json::array();
    for (int i = 0; i < n; ++i) {
      Json one = parse_json(each, "each");
      if (one.is_object() && one.contains("maxLength")) one["maxLength"] = 2000 + i;
      if (one.is_number()) one = i;
      all.push_back(one);
    }
    return dump_json(Json{{key, all}});
  };
  Json properties = Json::object();
  for (int i = 0; i < 501; ++i) properties["p" + std::to_string(i)] = {{"type", "null"}};
  const Json object{{"type", "object"},
                    {"properties", properties},
                    {"required", {"p0", "p1"}},
                    {"additionalProperties", false}};
  const std::pair<std::string, const char*> halves[] = {
      {pattern("[a-c]{1,32}", 129), "more than 256 repetitions"},
      {pattern("aaaaaaaa", 1025), "more than 16384 bytes of patterns"},
      {list("enum", 2501, "0"), "more than 5000 values of `enum`"},
      {list("anyOf", 1001, R"({"type":"null"})"), "more than 2000 schemas"},
      {list("anyOf", 101, R"({"type":"string","maxLength":0})"),
       "more than 200 values of minLength"},
      {dump_json(object), "more than 1000 properties"}};
  for (const auto& [half, refused] : halves) {
    const std::string found = refusal_of(half.c_str());
    CHECK_MESSAGE(found.find(refused) != found.npos, found);
  }
}

TEST_CASE("an error names what is wrong to its end, whatever characters it has") {
  Qwen f;
  const std::string found =
      refusal(f, R"({"type":"object","properties":{"a\u0000b":{"type":"no"}}})");
  CHECK(found.find("#/properties/a\\x00b: found \"no\", expected null") != std::string::npos);
}
