#include "temper/base/config/yaml.h"

#include <doctest/doctest.h>

#include "temper/base/error.h"

using namespace temper;

namespace {

std::string yaml_error(const std::string& text) {
  try {
    parse_yaml(text, "run.yaml");
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "no error";
}

std::string repeat(const std::string& text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

}  // namespace

TEST_CASE("every node knows the line where it was written, and whether it was quoted") {
  const YamlNode root =
      parse_yaml("# comment\na: 1\nb:\n  - x\n  - 'y'\nc: {d: null, e: }\n", "run.yaml");
  CHECK(root.find("a")->text == "1");
  CHECK(root.find("a")->origin.str() == "run.yaml:2");
  CHECK(root.find("b")->items[1].origin.str() == "run.yaml:5");
  CHECK_FALSE(root.find("b")->items[0].quoted);
  CHECK(root.find("b")->items[1].quoted);
  CHECK(root.find("c")->find("d")->kind == YamlNode::Kind::kNull);
  CHECK(root.find("c")->find("e")->kind == YamlNode::Kind::kNull);
  CHECK(root.find("f") == nullptr);
  CHECK(root.entries[2].origin.str() == "run.yaml:6");
  CHECK(parse_yaml("x", "command line: a=x", true).origin.str() == "command line: a=x");
}

TEST_CASE("an empty document is null") {
  for (const char* text : {"", "\n\n", "# only a comment\n", "---\n", "~"})
    CHECK(parse_yaml(text, "run.yaml").kind == YamlNode::Kind::kNull);
}

TEST_CASE("block scalars keep their lines") {
  const YamlNode root = parse_yaml("a: >-\n  x\n  y\nb: |\n  x\n  y\n", "run.yaml");
  CHECK(root.find("a")->text == "x y");
  CHECK(root.find("b")->text == "x\ny\n");
  CHECK(root.find("b")->quoted);
}

TEST_CASE("an alias is a copy of its anchor's value") {
  const YamlNode root = parse_yaml("a: &x {k: [1, 2]}\nb: *x\n", "run.yaml");
  CHECK(dump_yaml(root) == "a:\n  k: [1, 2]\nb:\n  k: [1, 2]\n");
}

TEST_CASE("what is refused, and where it stands") {
  CHECK(yaml_error("a: 1\nb: 2\na: 3\n") ==
        "run.yaml:3: the key \"a\" a second time; the first is at run.yaml:1");
  CHECK(yaml_error("a: 1\n---\nb: 2\n") ==
        "run.yaml:2: a second YAML document; expected one a file (remove the \"---\")");
  CHECK(yaml_error("a: !!python/object:os.system x\n") ==
        "run.yaml:1: the tag tag:yaml.org,2002:python/object:os.system; tags have no meaning here, "
        "remove it");
  CHECK(yaml_error("a: &x {b: 1}\nc:\n  <<: *x\n") ==
        "run.yaml:3: merge keys (\"<<\") are not supported; give several config files instead, "
        "later ones win");
  CHECK(yaml_error("a: &x [1, *x]\n") == "run.yaml:1: an alias inside of its own anchor");
  CHECK(yaml_error("[1, 2]: 3\n") ==
        "run.yaml:1: a key must be text, found a list or a map; is every bracket closed?");
  CHECK(yaml_error("a: 1\n: 2\n") == "run.yaml:2: expected a key before \":\"");
  CHECK(yaml_error(std::string("a: 1\nb: \x04\n")) ==
        "run.yaml:2: byte 4 is not allowed in YAML; expected UTF-8 text");
  CHECK(yaml_error(std::string("a\0: 1", 5)) ==
        "run.yaml:1: byte 0 is not allowed in YAML; expected UTF-8 text");
}

TEST_CASE("a syntax error is yaml-cpp's message with file and line") {
  CHECK(yaml_error("a: [1, 2\nb: 3\n").starts_with("run.yaml:2: not valid YAML: "));
  CHECK(yaml_error("a:\n\tb: 1\n").starts_with("run.yaml:2: not valid YAML: "));
  CHECK(yaml_error("a: b: c\n").starts_with("run.yaml:1: not valid YAML: "));
  CHECK(yaml_error("a: 'open\n") == "run.yaml:1: not valid YAML: illegal EOF in scalar");
  CHECK(yaml_error("a: \"open\nb: 2\n") == "run.yaml:2: not valid YAML: illegal EOF in scalar");
}

TEST_CASE("size, nesting and aliases are bounded") {
  CHECK(yaml_error(repeat("[", 32) + repeat("]", 32)) == "no error");
  CHECK(yaml_error(repeat("[", 33) + repeat("]", 33)) ==
        "run.yaml:1: nested deeper than 32 levels");
  CHECK(yaml_error(repeat("- ", 100000) + "x") == "run.yaml:1: nested deeper than 32 levels");
  CHECK(yaml_error(repeat("? ", 100000) + "x") ==
        "run.yaml:1: a key must be text, found a list or a map; is every bracket closed?");
  CHECK(yaml_error(std::string((1 << 20) + 1, 'x')) ==
        "run.yaml: 1048577 bytes; a config has at most 1048576");
  CHECK(yaml_error("a: &x 1\nb: [" + repeat("*x, ", 64) + "]\n") == "no error");
  CHECK(yaml_error("a: &x 1\nb: [" + repeat("*x, ", 65) + "]\n") ==
        "run.yaml:2: more than 64 aliases");
  // Six levels of eight aliases each are 48 aliases and 262144 values.
  std::string bomb = "a: &a [1, 1, 1, 1, 1, 1, 1, 1]\n";
  for (char c = 'b'; c <= 'g'; ++c)
    bomb += std::string(1, c) + ": &" + c + " [" +
            repeat(std::string("*") + char(c - 1) + ", ", 8) + "]\n";
  CHECK(yaml_error(bomb).ends_with(": more than 100000 values"));
}

TEST_CASE("maps merge and everything else replaces") {
  YamlNode base = parse_yaml("a: {b: 1, c: [1, 2]}\nd: 1\n", "one.yaml");
  merge_yaml(base, parse_yaml("a: {c: [3], e: 4}\nd: {f: 5}\n", "two.yaml"));
  CHECK(dump_yaml(base) == "a:\n  b: 1\n  c: [3]\n  e: 4\nd:\n  f: 5\n");
  CHECK(base.find("a")->find("b")->origin.str() == "one.yaml:1");
  CHECK(base.find("a")->find("c")->origin.str() == "two.yaml:1");
}

TEST_CASE("a dump reads back to the same texts, and quotes what a reader could mistake") {
  const auto dumped = [](const std::string& text) {
    const std::string out = dump_yaml(YamlNode::scalar(text, true));
    CHECK(parse_yaml(out, "dump").text == text);
    return out.substr(0, out.size() - 1);
  };
  for (const char* plain : {"adamw", "all-linear", "/data/x.jsonl", "a/b.c", "_x"})
    CHECK(dumped(plain) == plain);
  for (const char* quoted :
       {"",   "null", "True", "yes",  "no",         "ON",   "~",   "1",        "1e5", "0x1f",
        ".5", "-",    "- a",  "a: b", "#",          "a #b", "*x",  "&x",       "!x",  "a,b",
        "[",  "{",    "%",    "@",    "2024-01-01", "...",  "---", "\xc3\xa9", " a",  "a "})
    CHECK(dumped(quoted) == "\"" + std::string(quoted) + "\"");
  CHECK(dumped("a\"b\\c\nd\te\x01") == "\"a\\\"b\\\\c\\nd\\te\\x01\"");
}

TEST_CASE("lists of maps and comments are written in block style") {
  YamlNode root =
      parse_yaml("r: [{a: 1, b: [x, 'y z']}, {c: {}}]\ne: []\nm: {}\nl: [[1], [2, 3]]\n", "x");
  root.entries[1].comment = "nothing";
  const std::string out = dump_yaml(root);
  CHECK(out ==
        "r:\n  - a: 1\n    b: [x, \"y z\"]\n  - c: {}\ne: []  # nothing\nm: {}\nl:\n  - [1]\n  - "
        "[2, 3]\n");
  CHECK(dump_yaml(parse_yaml(out, "x")) ==
        "r:\n  - a: 1\n    b: [x, \"y z\"]\n  - c: {}\ne: []\nm: {}\nl:\n  - [1]\n  - [2, 3]\n");
}
