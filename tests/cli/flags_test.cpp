// Flags of a command line and of files.
#include "temper/cli/parts/flags.h"

#include <doctest/doctest.h>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/process/scratch.h"

using namespace temper;
using namespace temper::cli;

namespace {

// Flags of every kind, and what they hold once they are read.
struct FlagSample {
  std::string model, dtype;
  int64_t top = 3;
  std::optional<double> near;
  bool json = false;
  std::vector<std::string> stops, inputs;
  std::map<std::string, std::string> columns;
  bool uses_words;

  explicit FlagSample(bool words = false) : uses_words(words) {}

  // What is wrong with the arguments, up to where help is; "" where they are read.
  std::string read(const Arguments& arguments) {
    Flags f("temper score");
    f.add("--model", model, "directory", required());
    f.add("--dtype", dtype, "dtype", one_of({"float32", "bfloat16"}));
    f.add("--top-logprobs", top, "tokens", at_least(0));
    f.add("--near", near, "similarity", fraction());
    f.add("--json", json, "one object");
    f.add("--stop", stops, "texts");
    f.add("--columns", columns, "names").several = true;
    f.needs("--near", "--dtype");
    f.excludes("--json", {"--stop"});
    if (uses_words) f.add("IN", inputs, "files");
    try {
      return f.read(arguments) ? "" : "help";
    } catch (const ConfigError& e) {
      const std::string what = e.what();
      return what.substr(0, what.find("; see temper score --help"));
    }
  }
};
std::string refusal(const Arguments& arguments) { return FlagSample().read(arguments); }

}  // namespace

TEST_CASE("flags and words are read in any order") {
  FlagSample s(true);
  CHECK(s.read({"a", "--model", "x", "b", "--top-logprobs=7", "--json", "--columns", "p=q", "r=s",
                "c", "--dtype", "bfloat16", "--near", "0.5", "--", "--d"}) == "");
  CHECK(s.inputs == std::vector<std::string>{"a", "b", "c", "--d"});
  CHECK(s.columns == std::map<std::string, std::string>{{"p", "q"}, {"r", "s"}});
  CHECK((s.model == "x" && s.top == 7 && s.json && s.dtype == "bfloat16" && s.near == 0.5));
  FlagSample m(true);  // a shell takes {..} apart at blanks
  CHECK(m.read({"--model=x", "--columns", "{p:", "q,", "r:", "s}", "a"}) == "");
  CHECK((m.columns == s.columns && m.inputs.size() == 1));
  CHECK(m.read({"--model=x", "--columns", "{p:"}).starts_with("--columns: "));
  CHECK(m.read({"--model=x", "--columns", "p"}).starts_with("--columns: found p, expected a map"));
  FlagSample t;  // a flag's value is the next word, whatever it is
  CHECK(t.read({"--stop", "--model", "--stop=", "--model", "a=b"}) == "");
  CHECK(t.stops == std::vector<std::string>{"--model", ""});
  CHECK((t.model == "a=b" && t.top == 3));
  CHECK(t.read({"--wrong-too", "--help"}) != "help");
  CHECK(t.read({"-h", "--wrong"}) == "help");
}

TEST_CASE("a misspelt flag is named with the nearest one, also where a required one is missing") {
  CHECK(refusal({"--modle", "x"}) == "unknown flag `--modle`; did you mean `--model`?");
  CHECK(refusal({"--model", "x", "--top-logprob=3"}).ends_with("did you mean `--top-logprobs`?"));
  CHECK(refusal({"--model", "x", "y"}).starts_with("unexpected `y`"));
  CHECK(refusal({}).starts_with("--model is required"));
  CHECK(refusal({"--model", ""}).starts_with("--model: found \"\", expected text"));
  CHECK(refusal({"--model"}) == "--model: found no value, expected text");
  CHECK(refusal({"--model", "x", "--model", "y"}) == "--model: given twice");
  CHECK(refusal({"--model", "x", "--top-logprobs", "-1"}) ==
        "--top-logprobs: found -1, expected integer >= 0");
  CHECK(refusal({"--model", "x", "--top-logprobs", "1e3"}).ends_with("; write 1000"));
  CHECK(refusal({"--model", "x", "--dtype", "float23"}).ends_with("did you mean `float32`?"));
  CHECK(refusal({"--model", "x", "--near", "0.5"}) == "--near requires --dtype");
  CHECK(refusal({"--model", "x", "--json", "--stop", "a"}) == "--json excludes --stop");
  CHECK(refusal({"--model", "x"}).empty());
}

TEST_CASE("a file holds flags as keys, and flags win") {
  const process::ScratchDirectory scratch;
  const std::string file = scratch.path() + "/options.yaml";
  const auto with = [&](const std::string& text, const Arguments& flags, FlagSample& s) {
    write_file_atomic(file, text);
    Arguments all{file};
    all.insert(all.end(), flags.begin(), flags.end());
    return s.read(all);
  };
  FlagSample s;
  CHECK(with("model: x\ntop_logprobs: 7\nstop: [a, b]\nnear: 0.5\n", {"--dtype", "float32"}, s) ==
        "");
  CHECK((s.model == "x" && s.top == 7 && s.stops.size() == 2 && s.near == 0.5));
  CHECK(with("model: x\ntop_logprobs: 7\n", {"--top-logprobs", "2", "--model", "y"}, s) == "");
  CHECK((s.model == "y" && s.top == 2));
  CHECK(with("top_logprob: 7\n", {"--model", "y"}, s) ==
        file + ":1: unknown key `top_logprob`; did you mean `top_logprobs`?");
  CHECK(with("top_logprobs: -7\n", {"--model", "y"}, s) ==
        file + ":1: top_logprobs: found -7, expected integer >= 0");
  CHECK(with("json: true\n", {}, s).starts_with("--model is required"));
}
