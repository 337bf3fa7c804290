// What is read of a command line.
#include "temper/cli/parts/options.h"

#include <doctest/doctest.h>

#include "temper/base/error.h"

using namespace temper;
using namespace temper::cli;

TEST_CASE("a command is split as a POSIX shell splits it") {
  using Words = std::vector<std::string>;
  CHECK(split_command("python3 rw.py") == Words{"python3", "rw.py"});
  CHECK(split_command("  a\tb  ") == Words{"a", "b"});
  CHECK(split_command(R"(sh -c 'echo "$1"; exit' "two words" a\ b)") ==
        Words{"sh", "-c", "echo \"$1\"; exit", "two words", "a b"});
  CHECK(split_command(R"("a\"b\\c\d" 'e\f' g""h '')") == Words{R"(a"b\c\d)", R"(e\f)", "gh", ""});
  CHECK(split_command("").empty());
  CHECK_THROWS_AS(split_command("sh -c 'echo"), ConfigError);
}

namespace {

std::string refusal(const Arguments& arguments) {
  CLI::App app("", "score");
  std::string model;
  int64_t top = 0;
  app.add_option("--model", model)->required();
  app.add_option("--top-logprobs", top)->check(non_negative());
  try {
    parse_flags(app, arguments);
    return "";
  } catch (const ConfigError& e) {
    return e.what();
  }
}

}  // namespace

TEST_CASE("a misspelt flag is named with the nearest one, also where a required one is missing") {
  CHECK(refusal({"--modle", "x"}).find("unknown flag `--modle`; did you mean `--model`?") !=
        std::string::npos);
  CHECK(refusal({"--model", "x", "--top-logprob=3"}).find("did you mean `--top-logprobs`?") !=
        std::string::npos);
  CHECK(refusal({"--model", "x", "y"}).find("unexpected `y`") != std::string::npos);
  CHECK(refusal({}).find("--model is required") != std::string::npos);
  CHECK(refusal({"--model", "x"}).empty());
}

TEST_CASE("every verb that takes flags hands out its description, with a default for each number") {
  for (const Verb& verb : verbs()) {
    CAPTURE(verb.name);
    const std::vector<Flag> flags = flags_of(verb);
    CHECK(flags.empty() == (verb.make == nullptr));
    for (const Flag& flag : flags) CHECK(!flag.help.empty());
  }
}
