#include "temper/base/config/config.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "temper/base/config/config_synonyms.h"
#include "temper/base/error.h"

using namespace temper;

namespace {

enum class Colour { kRed, kGreen };

struct Item {
  std::string path;
  double weight = 1;
  void fields(Fields& f) {
    f.add("path", path, "a file", reads(InputFiles::kRows, required()));
    f.add("weight", weight, "its share", above(0));
  }
};

struct Inner {
  double rate = 2e-5;
  std::array<double, 2> betas = {0.9, 0.999};
  void fields(Fields& f) {
    f.add("rate", rate, "a rate", at_least(0));
    f.add("betas", betas, "two shares", fraction());
  }
};

struct Sample {
  int64_t count = 3;
  bool flag = true;
  std::string name = "x";
  std::string kind = "a";
  Colour colour = Colour::kGreen;
  std::optional<int64_t> limit;
  std::vector<std::string> words;
  std::vector<Item> items;
  std::map<std::string, std::string> columns;
  Inner inner;
  void fields(Fields& f) {
    f.add("count", count, "a count", at_least(1));
    f.add("flag", flag, "a switch");
    f.add("name", name, "a name");
    f.add("kind", kind, "a choice", one_of({"a", "bee"}));
    f.add("colour", colour, "a colour");
    f.add("limit", limit, "a limit", at_least(1));
    f.add("words", words, "some words", reads(InputFiles::kProgram, one_or_list()));
    f.add("items", items, "some files", one_or_list());
    f.add("columns", columns, "names");
    f.add("inner", inner, "more");
  }
};

}  // namespace

template <>
inline constexpr std::array temper::enum_names<Colour> = {"red", "green"};

namespace {

Sample read(const std::string& yaml) {
  Sample sample;
  read_fields(parse_yaml(yaml, "c.yaml"), "", Fields::of(sample));
  return sample;
}

template <class Action>
std::string error_of(Action&& action) {
  try {
    action();
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "no error";
}

std::string read_error(const std::string& yaml) {
  return error_of([&] { read(yaml); });
}

std::string dump(Sample sample) { return dump_yaml(write_fields(Fields::of(sample))); }

}  // namespace

TEST_CASE("values of every type are read") {
  const Sample s = read(
      "count: 7\nflag: false\nname: 123\nkind: bee\ncolour: red\nlimit: 5\nwords: [a, '1']\n"
      "items: [{path: p, weight: 2}, {path: q}]\ncolumns: {a: b}\ninner: {rate: 1e-3, betas: [0, "
      ".5]}\n");
  CHECK(s.count == 7);
  CHECK_FALSE(s.flag);
  CHECK(s.name == "123");
  CHECK(s.kind == "bee");
  CHECK(s.colour == Colour::kRed);
  CHECK(s.limit == 5);
  CHECK(s.words == std::vector<std::string>{"a", "1"});
  REQUIRE(s.items.size() == 2);
  CHECK(s.items[0].weight == 2);
  CHECK(s.items[1].path == "q");
  CHECK(s.items[1].weight == 1);
  CHECK(s.columns.at("a") == "b");
  CHECK(s.inner.rate == 1e-3);
  CHECK(s.inner.betas == std::array<double, 2>{0, 0.5});
}

TEST_CASE("what is not written keeps its default, and null empties what may be empty") {
  CHECK(dump(read("")) == dump(Sample()));
  CHECK(dump(read("inner:\ncolumns:\nwords:\nitems: null\nlimit: null\n")) == dump(Sample()));
}

TEST_CASE("a scalar or a map stands for a list of one") {
  CHECK(read("words: one").words == std::vector<std::string>{"one"});
  CHECK(read("items: data.jsonl").items.at(0).path == "data.jsonl");
  CHECK(read("items: {path: p, weight: 3}").items.at(0).weight == 3);
}

TEST_CASE("numbers are read as users write them") {
  for (const auto& [text, value] : std::vector<std::pair<const char*, double>>{{"2e-5", 2e-5},
                                                                               {"2.0e-5", 2e-5},
                                                                               {"2E-5", 2e-5},
                                                                               {"+1.5", 1.5},
                                                                               {".5", .5},
                                                                               {"5.", 5},
                                                                               {"3", 3},
                                                                               {"0", 0}})
    CHECK(read(std::string("inner: {rate: ") + text + "}").inner.rate == value);
  CHECK(read("count: +12").count == 12);
  CHECK(read("count: 9223372036854775807").count == INT64_MAX);
  CHECK(read("count: 010").count == 10);
}

TEST_CASE("wrong values name file, line and key, what was found and what was expected") {
  CHECK(read_error("\ncount: 0") == "c.yaml:2: count: found 0, expected integer >= 1");
  CHECK(read_error("count: 1.5") == "c.yaml:1: count: found 1.5, expected integer >= 1");
  CHECK(read_error("count: 1e3") ==
        "c.yaml:1: count: found 1e3, expected integer >= 1; write 1000");
  CHECK(read_error("count: 1_000") ==
        "c.yaml:1: count: found 1_000, expected integer >= 1; write 1000");
  CHECK(read_error("count: '5'") ==
        "c.yaml:1: count: found \"5\", expected integer >= 1; write it without quotes");
  CHECK(read_error("count: 9223372036854775808") ==
        "c.yaml:1: count: found 9223372036854775808, expected integer >= 1");
  CHECK(read_error("count: null") == "c.yaml:1: count: found null, expected integer >= 1");
  CHECK(read_error("count: 0x10") == "c.yaml:1: count: found 0x10, expected integer >= 1");
  CHECK(read_error("inner: {rate: fast}") ==
        "c.yaml:1: inner.rate: found fast, expected number >= 0");
  for (const char* text :
       {"nan", ".nan", "inf", ".inf", "infinity", "1e999", "+-1", "+", "''", "1 2"})
    CHECK(read_error(std::string("inner: {rate: ") + text + "}").find("expected number >= 0") !=
          std::string::npos);
  CHECK(read_error("inner:\n  betas: [0.9, 1]") ==
        "c.yaml:2: inner.betas[1]: found 1, expected number >= 0 and < 1");
  CHECK(read_error("inner: {betas: [0.9]}") ==
        "c.yaml:1: inner.betas: found a list, expected a list of 2");
  CHECK(read_error("inner: [1]") ==
        "c.yaml:1: inner: found a list, expected a map of keys and values");
  CHECK(read_error("flag: yes") == "c.yaml:1: flag: found yes, expected true or false; write true");
  CHECK(read_error("flag: False") ==
        "c.yaml:1: flag: found False, expected true or false; write false");
  CHECK(read_error("flag: maybe") == "c.yaml:1: flag: found maybe, expected true or false");
  CHECK(read_error("kind: be") ==
        "c.yaml:1: kind: found be, expected a | bee; did you mean `bee`?");
  CHECK(read_error("colour: blue") == "c.yaml:1: colour: found blue, expected red | green");
  CHECK(read_error("name: {a: 1}") == "c.yaml:1: name: found a map, expected text");
  CHECK(read_error("items: [{path: p}, {weight: 2}]") ==
        "c.yaml:1: items[1].path is required: a file");
  CHECK(read_error("items:\n- path: p\n  weight: 0") ==
        "c.yaml:3: items[0].weight: found 0, expected number > 0");
  CHECK(read_error("items: ['']") ==
        "c.yaml:1: items[0].path: found \"\", expected text that is not empty");
  CHECK(read_error("columns: {a: [1]}") == "c.yaml:1: columns.a: found a list, expected text");
  CHECK(read_error("just text") ==
        "c.yaml:1: the config: found just text, expected a map of keys and values");
}

TEST_CASE("an unknown key names the nearest one, or the place where it belongs") {
  const std::string other = read_error("mistral: 1");  // like none of them
  CHECK(other.starts_with("c.yaml:1: unknown key `mistral`; expected one of "));
  CHECK(other.find("did you mean") == std::string::npos);
  CHECK(read_error("count: 2\nfalg: true") == "c.yaml:2: unknown key `falg`; did you mean `flag`?");
  CHECK(read_error("inner:\n  rat: 1") ==
        "c.yaml:2: unknown key `inner.rat`; did you mean `inner.rate`?");
  CHECK(read_error("betas: [0, 0]") ==
        "c.yaml:1: unknown key `betas`; did you mean `inner.betas`?");
  CHECK(read_error("inner: {count: 1}") ==
        "c.yaml:1: unknown key `inner.count`; did you mean `count`?");
  CHECK(read_error("items: [{pat: x}]") ==
        "c.yaml:1: unknown key `items[0].pat`; did you mean `items[0].path`?");
  CHECK(read_error("\"a\\nb\": 1").find('\n') == std::string::npos);
}

TEST_CASE("all unknown keys of a config are told at once, up to a hundred") {
  CHECK(read_error("falg: true\ncount: 2\ninner: {rat: 1}\nmistral: 1")
            .starts_with("c.yaml:1: unknown key `falg`; did you mean `flag`?\n"
                         "  c.yaml:3: unknown key `inner.rat`; did you mean `inner.rate`?\n"
                         "  c.yaml:4: unknown key `mistral`; expected one of "));
  // Before any wrong value is: what is spelt wrong is seen together.
  CHECK(read_error("count: many\nfalg: true").starts_with("c.yaml:2: unknown key `falg`"));
  std::string many;
  for (int i = 0; i < 47; ++i) many += str("zzzzz", i, ": 1\n");
  CHECK(read_error(many).find("unknown key `zzzzz46`") != std::string::npos);
  CHECK(read_error(many).find("more unknown keys") == std::string::npos);
  for (int i = 47; i < 102; ++i) many += str("zzzzz", i, ": 1\n");
  CHECK(read_error(many).ends_with("\n  and 2 more unknown keys"));
}

TEST_CASE("a key that stands at several places names them all") {
  struct Twice {
    Inner first, second;
    void fields(Fields& f) {
      f.add("first", first, "one");
      f.add("second", second, "two");
    }
  } twice;
  CHECK(error_of([&] { read_fields(parse_yaml("rate: 1", "c.yaml"), "", Fields::of(twice)); }) ==
        "c.yaml:1: unknown key `rate`; did you mean `first.rate` or `second.rate`?");
}

TEST_CASE("a key of another program says what it is here") {
  constexpr KeySynonym kSynonyms[] = {{"lora", "inner", ""},
                                      {"per_lot", "inner", "it is a whole number"},
                                      {"speed", "inner", "write inner: 1"},
                                      {"style.n", "rate", ""}};
  use_key_synonyms(kSynonyms);
  CHECK(read_error("per-Lot: 1") ==
        "c.yaml:1: unknown key `per-Lot`; `per-Lot` is called inner here; it is a whole number");
  CHECK(
      read_error("speed: false").ends_with("; false is what a run does without it: leave it out"));
  // Sections of other programs: their first value says what is meant.
  CHECK(read_error("theirs: {style: {n: 5}}") ==
        "c.yaml:1: unknown key `theirs`; `theirs.style.n` is called rate here");
  // A key of one's own is no synonym, wherever it stands.
  struct Own {
    Item lora;
    void fields(Fields& f) { f.add("lora", lora, "an item"); }
  } own;
  CHECK(error_of([&] {
          read_fields(parse_yaml("lora: {path: x, lora: 1}", "c.yaml"), "", Fields::of(own));
        }) == "c.yaml:1: unknown key `lora.lora`; did you mean `lora`?");
  use_key_synonyms({});
  CHECK(find_key_synonym("lora") == nullptr);
}

TEST_CASE("a map of text may be written as the flag --columns takes it") {
  using Map = std::map<std::string, std::string>;
  const Map two{{"prompt", "question"}, {"completion", "meta.answer"}};
  for (const char* written :
       {"{prompt: question, completion: meta.answer}", "prompt=question completion=meta.answer",
        "'prompt=question, completion=meta.answer'", "[prompt=question, completion=meta.answer]",
        "{prompt=question, completion=meta.answer}",
        "{prompt=question, completion: meta.answer}"}) {
    CAPTURE(written);
    CHECK(read(std::string("columns: ") + written).columns == two);
  }
  CHECK(read("columns: {a=b: c}").columns == Map{{"a=b", "c"}});
  for (const char* written :
       {"question", "=question", "prompt=", "[prompt]", "[{prompt: q}]", "''"})
    CHECK(read_error(std::string("columns: ") + written).find("expected a map of text") !=
          std::string::npos);
}

TEST_CASE("a command that is text is shown as the list that it should be") {
  struct Program {
    std::vector<std::string> command;
    void fields(Fields& f) { f.add("command", command, "a program"); }
  } program;
  const auto error = [&](const std::string& value) {
    return error_of(
        [&] { read_fields(parse_yaml("command: " + value, "c.yaml"), "", Fields::of(program)); });
  };
  CHECK(error("python3 reward.py") ==
        "c.yaml:1: command: found python3 reward.py, expected a list; a program and its arguments "
        "are a list: [python3, reward.py]");
  CHECK(error("'python3 r.py | tail -1'").ends_with("are a list: [bash, -c, \"the command\"]"));
  CHECK(error("PORT=1 python3 r.py").ends_with("are a list: [bash, -c, \"the command\"]"));
  CHECK(error("a=b").ends_with("are a list: [a=b]"));
}

TEST_CASE("a value where a section stands names the section's first key") {
  CHECK(read_error("inner: fast") ==
        "c.yaml:1: inner: found fast, expected a map of keys and values; did you mean "
        "`inner.rate`?");
}

TEST_CASE("a dump holds every value and reads back to the same") {
  Sample s = read("limit: 4\nname: 'true'\nitems: [p]\nwords: ['null', '']\ncolumns: {'a b': c}");
  s.inner.rate = 0.1 + 0.2;
  s.inner.betas = {std::nextafter(0.9, 1.0), 1e-300};
  const std::string yaml = dump(s);
  CHECK(yaml ==
        "count: 3\nflag: true\nname: \"true\"\nkind: a\ncolour: green\nlimit: 4\nwords: [\"null\", "
        "\"\"]\n"
        "items:\n  - path: p\n    weight: 1.0\ncolumns:\n  \"a b\": c\n"
        "inner:\n  rate: 0.30000000000000004\n  betas: [0.9000000000000001, 1.0e-300]\n");
  const Sample again = read(yaml);
  CHECK(dump(again) == yaml);
  CHECK(again.inner.rate == s.inner.rate);
  CHECK(again.inner.betas == s.inner.betas);
}

TEST_CASE("a dump may carry the help as comments") {
  Inner inner;
  CHECK(dump_yaml(write_fields(Fields::of(inner), true)) ==
        "rate: 2.0e-05  # a rate\nbetas: [0.9, 0.999]  # two shares\n");
}

TEST_CASE("overrides nest, merge in order and carry their origin") {
  const std::vector<std::string> arguments = {"inner.rate=1", "items=[{path: p}]",
                                              "inner={betas: [0, 0]}", "inner.rate=-2"};
  const YamlNode root = read_config_arguments(arguments);
  CHECK(dump_yaml(root) == "inner:\n  rate: -2\n  betas: [0, 0]\nitems:\n  - path: p\n");
  CHECK(find_key(root, "inner.rate")->text == "-2");
  CHECK(find_key(root, "inner.rat") == nullptr);
  CHECK(find_key(root, "inner.rate.x") == nullptr);
  Sample sample;
  CHECK(error_of([&] { read_fields(root, "", Fields::of(sample)); }) ==
        "command line: inner.rate=-2: inner.rate: found -2, expected number >= 0");
  CHECK(read_config_arguments(std::vector<std::string>{"limit=null"}).find("limit")->kind ==
        YamlNode::Kind::kNull);
  for (const char* empty : {"limit=", "limit= "})
    CHECK(error_of([&] {
            read_config_arguments(std::vector<std::string>{empty});
          }).find(": found no value; write limit=null for none") != std::string::npos);
  CHECK(error_of([&] {
          read_config_arguments(std::vector<std::string>{"inner.rate"}, Fields::of(sample));
        }) == "`inner.rate`: a key without a value; write inner.rate=VALUE");
}

TEST_CASE("an override without a value is told what its key may be") {
  struct Keys {
    std::optional<int64_t> limit;
    std::string path = "p", output;
    std::vector<std::string> words;
    int64_t steps = 1;
    Inner inner;
    void fields(Fields& f) {
      f.add("inner", inner, "");
      f.add("limit", limit, "");
      f.add("path", path, "");
      f.add("output", output, "", required());
      f.add("words", words, "");
      f.add("steps", steps, "", at_least(1));
    }
  } keys;
  const auto advice = [&](const std::string& override) {
    const std::string error = error_of(
        [&] { read_config_arguments(std::vector<std::string>{override}, Fields::of(keys)); });
    return error.substr(error.find("write "));
  };
  CHECK(advice("limit=") == "write limit=null for none");
  CHECK(advice("path=") == "write path=VALUE (text), or path='\"\"' for empty text");
  CHECK(advice("output=") == "write output=VALUE (text)");
  CHECK(advice("words=") == "write words=VALUE (list of text)");
  CHECK(advice("inner=") == "write inner.rate=VALUE");
  CHECK(advice("steps=") == "write steps=VALUE (integer >= 1)");
}

TEST_CASE("rows where a config is expected are the data of a run") {
  CHECK(error_of([] { read_config_arguments(std::vector<std::string>{"rows.jsonl"}); }) ==
        "rows.jsonl: found a file of rows, expected a config file or dotted.key=value; write "
        "data.train=rows.jsonl");
  for (const char* name : {"a.ndjson", "a.parquet.gz", "a.tfrecord.gz",
                           "a/b.tfrecord-00000-of-00001", "a.tfrecords", "a.tsv"}) {
    CAPTURE(name);
    CHECK(error_of([&] {
            read_config_arguments(std::vector<std::string>{name});
          }).find(": found a file of rows") != std::string::npos);
  }
  for (const char* name : {"no-such.json", "no-such.yaml", "no-such.tfrecord-a-of-b"}) {
    CAPTURE(name);
    CHECK(error_of([&] {
            read_config_arguments(std::vector<std::string>{name});
          }).find(": found a file of rows") == std::string::npos);
  }
}

TEST_CASE("internal keys are read, and messages do not offer them") {
  struct Keys {
    int64_t steps = 1, written = 0;
    void fields(Fields& f) {
      f.add("steps", steps, "");
      f.add("written", written, "", internal());
    }
  } keys;
  read_fields(parse_yaml("written: 3", "c.yaml"), "", Fields::of(keys));
  CHECK(keys.written == 3);
  const auto error = [&](const std::string& text) {
    return error_of([&] { read_fields(parse_yaml(text, "c.yaml"), "", Fields::of(keys)); });
  };
  CHECK(error("colour: 1").ends_with("expected one of steps"));
  CHECK(error("writen: 1").find("`written`") == std::string::npos);
}

TEST_CASE("sections merge, maps of text and lists are replaced whole") {
  Sample sample;
  const std::vector<Field> schema = Fields::of(sample);
  const std::filesystem::path file = std::filesystem::temp_directory_path() /
                                     ("temper-merge-" + std::to_string(::getpid()) + ".yaml");
  std::ofstream(file) << "columns: {prompt: question, completion: answer}\nwords: [a, b]\n"
                         "inner: {rate: 1}\nitems: [{path: p, weight: 2}]\n";
  const auto columns = [&](std::vector<std::string> overrides) {
    overrides.insert(overrides.begin(), file.string());
    Sample read;
    read_fields(read_config_arguments(overrides, schema), "", Fields::of(read));
    CHECK(read.inner.rate == 1);
    return read.columns;
  };
  using Map = std::map<std::string, std::string>;
  CHECK(columns({}) == Map{{"prompt", "question"}, {"completion", "answer"}});
  CHECK(columns({"columns={}"}).empty());
  CHECK(columns({"columns=null"}).empty());
  CHECK(columns({"columns={prompt: q}"}) == Map{{"prompt", "q"}});
  CHECK(columns({"columns.prompt=q"}) == Map{{"prompt", "q"}, {"completion", "answer"}});
  CHECK(columns({"columns={}", "columns.a=b", "inner={betas: [0, 0]}"}) == Map{{"a", "b"}});
  CHECK(columns({file.string(), "words=[c]", "items=[q]"}).size() == 2);
  std::filesystem::remove(file);
}

TEST_CASE("what two configs differ in is told by key, before and after") {
  using Changes = std::vector<std::string>;
  const auto changes = [](const std::string& before, const std::string& after) {
    return changed_keys(parse_yaml(before, "b"), parse_yaml(after, "a"));
  };
  CHECK(changes("rl: {beta: 0.04, k: 1}  # help", "rl:  # other help\n  beta: 0.1\n  k: 1") ==
        Changes{"rl.beta: 0.04 -> 0.1"});
  CHECK(changes("a: 1\nb: {c: x}", "b: {c: 'x'}\na: 1") == Changes{});
  CHECK(changes("a: null\nb: []\nc: {}", "a: []\nb: {}\nc: null") == Changes{});
  CHECK(changes("a: [0.9, 0.999]", "a: [0.9, 0.95]") == Changes{"a: [0.9, 0.999] -> [0.9, 0.95]"});
  CHECK(changes("t: [{p: a, w: 1}, {p: b, w: 1}]", "t: [{p: a, w: 2}]") ==
        Changes{"t[0].w: 1 -> 2", "t[1]: {p: b, w: 1} -> (not set)"});
  CHECK(changes("a: 1", "a: 1\nb: {c: null}\nd: x y") ==
        Changes{"b: (not set) -> {c: null}", "d: (not set) -> \"x y\""});
  CHECK(changes("gone: 5\nt: null", "t: [{p: a}]") ==
        Changes{"t: null -> [{p: a}]", "gone: 5 -> (not set)"});
  CHECK(changes("", "a: " + std::string(300, 'x')).at(0).size() < 130);
  CHECK(changes("a: \"x\\ny\"", "a: z") == Changes{"a: \"x\\ny\" -> z"});
  Sample sample = read("limit: 4\nname: 'true'\ncolumns: {a: b}"), other = sample;
  other.inner.rate = 0.5;
  other.columns.clear();
  CHECK(changed_keys(parse_yaml(dump(sample), "b"), write_fields(Fields::of(sample))).empty());
  CHECK(changed_keys(parse_yaml(dump(sample), "b"), write_fields(Fields::of(other))) ==
        Changes{"columns: {a: b} -> null", "inner.rate: 2.0e-05 -> 0.5"});
}

TEST_CASE("arguments that are neither a file nor an override") {
  const auto error = [](const std::string& argument) {
    return error_of([&] { read_config_arguments(std::vector<std::string>{argument}); });
  };
  CHECK(error("--rate=1").starts_with("`--rate=1`: expected a config file or dotted.key=value; "));
  CHECK(error("gone.yaml") ==
        "gone.yaml: cannot open: No such file or directory; expected a config file, or "
        "dotted.key=value");
  CHECK(error("a..b=1").starts_with("a..b=1: cannot open"));
  CHECK(error("=1").starts_with("=1: cannot open"));
  CHECK(error("a='x").starts_with("command line: a='x: not valid YAML: illegal EOF"));
}

TEST_CASE("an override of a key that holds text takes what YAML would read otherwise") {
  Sample sample;
  const std::vector<Field> schema = Fields::of(sample);
  const auto read_name = [&](const std::string& text) {
    Sample read;
    const std::vector<std::string> arguments{"name=" + text};
    read_fields(read_config_arguments(arguments, schema), "", Fields::of(read));
    return read.name;
  };
  for (const char* text : {"[0-9]{2}", "[0-9]", "[0-9]+", "{2,3}", "a: b", "*x", "!x", "[a", "%d"})
    CHECK(read_name(text) == text);
  CHECK(read_name("\"[0-9]{2}\"") == "[0-9]{2}");
  CHECK(read_name("'a'") == "a");
  const auto error = [&](const std::string& argument) {
    return error_of([&] { read_config_arguments(std::vector<std::string>{argument}, schema); });
  };
  // Of other keys, and where quoting was begun, the user decides.
  CHECK(error("words=[0-9]{2}") ==
        "command line: words=[0-9]{2}: not one YAML value; text that YAML would read otherwise "
        "must be quoted: words='\"[0-9]{2}\"'");
  CHECK(error("words=*x").ends_with("must be quoted: words='\"*x\"'"));
  CHECK(error("words=[a").find("must be quoted") == std::string::npos);
  CHECK(error("name='x").starts_with("command line: name='x: not valid YAML"));
  CHECK(error("name=a\x04").find("is not allowed in YAML") != std::string::npos);
  CHECK(error("inner={rate: 1, rate: 2}").find("a second time") != std::string::npos);
}

TEST_CASE("texts that name input files are visited by key, with what they name") {
  Sample sample;
  sample.words = {"python3", "", "reward.py"};
  sample.items = {{"a.jsonl"}, {"b.jsonl", 2}};
  const std::vector<Field> fields = Fields::of(sample);
  std::vector<std::string> found;
  each_input(fields, write_fields(fields),
             [&](const std::string& key, const std::string& text, InputFiles files) {
               found.push_back(str(key, " ", text, files == InputFiles::kRows ? " rows" : ""));
             });
  CHECK(found == std::vector<std::string>{"words[0] python3", "words[2] reward.py",
                                          "items[0].path a.jsonl rows",
                                          "items[1].path b.jsonl rows"});
}

TEST_CASE("the description holds every path with type, default and help") {
  Sample sample;
  CHECK(describe_fields(Fields::of(sample)) ==
        "count: integer >= 1  (3)\n    a count\n"
        "flag: true | false  (true)\n    a switch\n"
        "name: text  (x)\n    a name\n"
        "kind: a | bee  (a)\n    a choice\n"
        "colour: red | green  (green)\n    a colour\n"
        "limit: integer >= 1 or null  (null)\n    a limit\n"
        "words: one or a list of text  ([])\n    some words\n"
        "items: one or a list of maps  ([])\n    some files\n"
        "items[].path: text  (required)\n    a file\n"
        "items[].weight: number > 0  (1.0)\n    its share\n"
        "columns: map of text  (null)\n    names\n"
        "inner.rate: number >= 0  (2.0e-05)\n    a rate\n"
        "inner.betas: list of number >= 0 and < 1  ([0.9, 0.999])\n    two shares\n");
}
