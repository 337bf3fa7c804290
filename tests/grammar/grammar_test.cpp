// Which tokens a grammar allows, for tokenizers of every kind: against lists of all texts that it
// may be, and by walks that end in JSON.
#include "temper/grammar/grammar.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "temper/base/error.h"
#include "temper/base/json.h"
#include "temper/grammar/json_pattern.h"
#include "temper/grammar/token_bytes.h"
#include "tests/text/golden.h"

using namespace temper;
using namespace temper::grammar;

namespace {

// Byte-level; with byte tokens; with and without a space before the first word.
const std::vector<std::string> kTokenizers{
    "gpt2", "qwen2", "llama3", "gemma", "llama2_legacy", "metaspace_always", "metaspace_first"};
constexpr int64_t kMore = 3;  // ids of the model that the tokenizer lacks

struct Fixture {
  explicit Fixture(const std::string& name)
      : tokenizer(golden_tokenizer(name)),
        vocabulary(tokenizer->vocab_size() + kMore),
        compiler(tokenizer, vocabulary) {}
  std::unique_ptr<Matcher> matcher(const Spec& spec, std::vector<int32_t> ends = {}) {
    return std::make_unique<Matcher>(compiler.compile(spec), std::move(ends));
  }
  std::shared_ptr<const Tokenizer> tokenizer;
  int64_t vocabulary;
  Compiler compiler;
};

Spec regex(const std::string& text) { return {Spec::Kind::kRegex, text, "regex"}; }
Spec schema(const std::string& text) { return {Spec::Kind::kJsonSchema, text, "schema"}; }
Spec ebnf(const std::string& text) { return {Spec::Kind::kGrammar, text, "grammar"}; }

// All texts that completions can be, by going every way. `end` is the one end token.
void collect(const Fixture& f, const Matcher& at, int32_t end, std::vector<int32_t>& ids,
             std::set<std::string>& texts) {
  REQUIRE(ids.size() < 64);
  for (int32_t id = 0; id < f.vocabulary; ++id) {
    if (!at.allows(id)) continue;
    if (id == end) {
      texts.insert(f.tokenizer->decode(ids, true));
      continue;
    }
    CHECK_FALSE(f.tokenizer->is_special(id));
    CHECK(id < f.tokenizer->vocab_size());
    const auto next = at.fork();
    next->accept(id);
    ids.push_back(id);
    collect(f, *next, end, ids, texts);
    ids.pop_back();
  }
}

std::string message(Fixture& f, const Spec& spec) {
  try {
    f.compiler.compile(spec);
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a regular expression: every way leads to its texts, and all of them are reached") {
  const std::set<std::string> texts{"a", "ab", " ab", "été", "日本", "😀!", "\ttab\n"};
  std::string expression;
  for (const std::string& text : texts) expression += (expression.empty() ? "" : "|") + text;
  for (const std::string& name : kTokenizers) {
    CAPTURE(name);
    Fixture f(name);
    const int32_t end = static_cast<int32_t>(f.vocabulary) - 1;
    std::set<std::string> found;
    std::vector<int32_t> ids;
    collect(f, *f.matcher(regex(expression), {end}), end, ids, found);
    CHECK(!found.empty());
    for (const std::string& text : found) CHECK_MESSAGE(texts.contains(text), text);
    for (const std::string& text : texts) {
      const std::vector<int32_t> encoded = f.tokenizer->encode(text);
      if (f.tokenizer->decode(encoded, true) != text) continue;  // a character that it lacks
      const auto at = f.matcher(regex(expression), {end});
      CAPTURE(text);
      bool allowed = true;
      for (const int32_t id : encoded) {
        allowed = allowed && at->allows(id);
        if (allowed) at->accept(id);
      }
      CHECK(allowed);
      CHECK(at->allows(end));
      CHECK(found.contains(text));
    }
  }
}

TEST_CASE("walks through a schema end in JSON of its form") {
  const std::string form = R"({"type": "object", "properties": {
      "name": {"type": "string", "maxLength": 6}, "kind": {"enum": ["α", "b\"c", 3, null]},
      "sizes": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 250},
                "maxItems": 3}}, "required": ["name", "kind", "sizes"]})";
  int able = 0;
  for (const std::string& name : kTokenizers) {
    CAPTURE(name);
    Fixture f(name);
    const std::string all = "{}[]\":,0123456789nul\\cα";  // small vocabularies may lack some
    if (f.tokenizer->decode(f.tokenizer->encode(all), true) != all) continue;
    ++able;
    std::mt19937 random(1);
    for (int walk = 0; walk < 20; ++walk) {
      const auto at = f.matcher(schema(form));
      std::vector<int32_t> ids;
      while (!at->ended()) {
        std::vector<int32_t> allowed;
        for (int32_t id = 0; id < f.vocabulary; ++id)
          if (at->allows(id)) allowed.push_back(id);
        REQUIRE(!allowed.empty());
        REQUIRE(ids.size() < 2000);
        ids.push_back(allowed[random() % allowed.size()]);
        at->accept(ids.back());
      }
      const std::string text = f.tokenizer->decode(ids, true);
      CAPTURE(text);
      const Json value = parse_json(text, "walk");
      CHECK(value.size() == 3);
      CHECK(value.at("name").is_string());
      const Json kinds = {"α", "b\"c", 3, nullptr};
      CHECK(std::find(kinds.begin(), kinds.end(), value.at("kind")) != kinds.end());
      CHECK(value.at("sizes").size() <= 3);
      for (const Json& size : value.at("sizes")) CHECK((size >= 0 && size <= 250));
    }
  }
  CHECK(able >= 4);
}

TEST_CASE("end tokens are allowed where the grammar may end, whatever they spell") {
  Fixture f("qwen2");
  const int32_t plain = f.tokenizer->encode("b").at(0), other = f.tokenizer->encode("a").at(0);
  const auto at = f.matcher(regex("ab*c?"), {plain});
  CHECK(at->allows(other));
  CHECK_FALSE(at->allows(plain));
  at->accept(other);
  CHECK(at->allows(plain));
  CHECK_FALSE(at->ended());
  const auto copy = at->fork();
  copy->accept(plain);
  CHECK(copy->ended());
  CHECK_FALSE(at->ended());
  // Inside the text it is a letter as any other; a whole text ends with it, or before it.
  for (const auto& [text, letters] :
       std::map<std::string, std::string>{{"abc", "abc"}, {"bb", "bb"}, {"ab|abbc", "ab"}}) {
    CAPTURE(text);
    const auto inside = f.matcher(regex(text), {plain});
    for (const char letter : letters) {
      REQUIRE_FALSE(inside->ended());
      const int32_t token = f.tokenizer->encode(std::string(1, letter)).at(0);
      REQUIRE(inside->allows(token));
      inside->accept(token);
    }
    CHECK((inside->ended() || (text == "abc" && inside->allows(plain))));
  }
  // Without end tokens the completion ends where nothing can follow, and not before.
  const auto none = f.matcher(regex("aa?"));
  none->accept(other);
  CHECK_FALSE(none->ended());
  none->accept(other);
  CHECK(none->ended());
  CHECK_THROWS_AS(at->accept(other), RunError);
}

TEST_CASE("grammars of rules, and any JSON object") {
  Fixture f("llama3");
  const auto accepts = [&](const Spec& spec, const std::string& text) {
    const auto at = f.matcher(spec, {0});
    for (const int32_t id : f.tokenizer->encode(text)) {
      if (!at->allows(id)) return false;
      at->accept(id);
    }
    return at->allows(0);
  };
  const Spec sums = ebnf("root ::= \"(\" root \")\" | term (\"+\" term)*\nterm ::= [0-9]+");
  CHECK(accepts(sums, "((12+3))"));
  CHECK_FALSE(accepts(sums, "((12+3)"));
  CHECK_FALSE(accepts(sums, "12+"));
  // A dot is any character, but not in a name, a string, a class or a comment.
  const Spec dots = ebnf("# 1.5 \"...\nroot ::= \"a.\" . [.\\]]+ .\"c\" a.b\na.b ::= \"z\"");
  for (const char* text : {"a.x.ycz", "a.é]ycz", "a.\n.]..cz"})
    CHECK_MESSAGE(accepts(dots, text), text);
  for (const char* text : {"abx.ycz", "a.x.yczz", "a.xycz", "a.x.cz", "a.x.yyz", "a.x.ycbz"})
    CHECK_FALSE_MESSAGE(accepts(dots, text), text);
  const Spec after_name = ebnf("root ::= head.+ \"z\" tail\nhead ::= \"a\"\ntail ::= \";\"");
  CHECK(accepts(after_name, "axyz;"));
  CHECK_FALSE(accepts(after_name, "bxz;"));
  const Spec object = json_object("json");
  for (const char* text : {"{}", R"({"a": [1, {"b": null}], "c": "x\n"})", "{ \"é\" : -1.5e3 }"})
    CHECK_MESSAGE(accepts(object, text), text);
  for (const char* text : {"[]", "1", "{\"a\": }", "{\"a\": 01}", "{'a': 1}", "{\"a\": 1,}"})
    CHECK_FALSE_MESSAGE(accepts(object, text), text);
}

TEST_CASE("what is wrong is said") {
  Fixture f("gpt2");
  const std::vector<std::pair<Spec, const char*>> wrong{
      {regex("a("), "regex: "},
      {regex("(?=a)b"), "regex: "},
      {regex("a**"), "regex: "},
      {regex("a^b"), "regex: not supported: "},
      {regex("a$b"), "regex: not supported: "},
      {regex("a\\qb"), "regex: not supported: "},
      {schema("{"), "schema: not valid JSON"},
      {schema("3"), "schema: expected a JSON schema"},
      {schema(R"({"type": "obect"})"), "schema: "},
      {schema(R"({"$ref": "#/$defs/none"})"), "schema: "},
      {schema(R"({"type": "array", "uniqueItems": true})"), "schema: not supported"},
      {schema(R"({"properties": {"a": {"anyOf": [{"not": {}}]}}})"), "schema: not supported"},
      {schema(R"({"type": "string", "pattern": "("})"), "schema: "},
      {ebnf("root ::= other"), "grammar: "},
      {ebnf("start ::= \"a\""), "grammar: "},
      {ebnf("root ::= \"a"), "grammar: "},
      {schema("false"), "schema: "},
      {regex(std::string(2000000, 'a')), "regex: more than"}};
  for (const auto& [spec, begins] : wrong) {
    const std::string found = message(f, spec);
    CAPTURE(spec.text.substr(0, 80));
    CHECK_MESSAGE(found.starts_with(begins), found);
    CHECK(found.find('\n') == std::string::npos);
    // It is refused: nothing goes on without it.
    for (const char* said : {"ignor", "will be"})
      CHECK_MESSAGE(found.find(said) == std::string::npos, found);
  }
  CHECK(message(f, regex("a")).empty());
  CHECK_THROWS_AS(Compiler(nullptr, 10), ConfigError);
}

TEST_CASE("large repetitions are counted, however they are written") {
  for (const std::string large : {"{32}", "{32,}", "{0,32}", "{ 32 }", "{32 ,}", "{ 1 ,\t99\n}",
                                  "{#\n32}", "{# a\r\n# 9\n 0032 # , 7\n}", "{+32}", "{32,-1}"})
    CHECK_MESSAGE(num_large_repeats(str("[a]", large, " [b]{2}")) == 1, large);
  for (const std::string small : {"{31}", "{ 31 }", "{3 1}", "{#32\n31}", "{32", "{a32}", "{}"})
    CHECK_MESSAGE(num_large_repeats(str("[a]", small, " [b]{2}")) == 0, small);
  std::string text = "root ::=";
  for (int i = 0; i < 257; ++i) text += " [a]{ 99 }";
  CHECK_THROWS_WITH_AS(check_size(ebnf(text)), doctest::Contains("257 repetitions"), ConfigError);
}

TEST_CASE("bytes that tokens add") {
  const auto tokenizer = golden_tokenizer("llama2_legacy");
  const TokenBytes tokens = token_bytes(*tokenizer, tokenizer->vocab_size());
  const auto id = [&](const char* token) { return tokenizer->id_of(token).value(); };
  CHECK(tokens.bytes[static_cast<size_t>(id("<0xE2>"))] == "\xE2");
  CHECK(tokens.bytes[static_cast<size_t>(id("<0x0A>"))] == "\n");
  CHECK(tokens.bytes[static_cast<size_t>(id("<s>"))].empty());
  CHECK(tokens.bytes[static_cast<size_t>(id("▁"))] == " ");
}
