// What is read of a command line.
#include "temper/cli/parts/options.h"

#include <doctest/doctest.h>

#include "temper/base/config/config_synonyms.h"
#include "temper/base/error.h"
#include "temper/cli/synonyms/synonyms.h"

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

TEST_CASE("a flag that other programs have is named as it is called here") {
  use_key_synonyms(key_synonyms());
  try {
    find_verb(verbs(), "generate").run({"--max-tokens", "3"});
    FAIL("it is read");
  } catch (const ConfigError& e) {
    CHECK(std::string(e.what()).find("did you mean `--max-new-tokens`?") != std::string::npos);
  }
}

TEST_CASE("the trainer whose keys are listed is asked for where its name is missing") {
  for (const Arguments& words :
       {Arguments{"synonyms", "--of"}, Arguments{"synonyms", "--of", "--markdown"}}) {
    std::string what;
    try {
      find_verb(verbs(), "list").run(words);
    } catch (const ConfigError& e) {
      what = e.what();
    }
    CHECK(what.starts_with("--of: the name of a trainer is missing, expected one of "));
    CHECK(what.find("trl") != std::string::npos);
  }
}

TEST_CASE("every verb that takes flags hands out its description, with a default for each number") {
  for (const Verb& verb : verbs()) {
    CAPTURE(verb.name);
    const std::vector<Flag> flags = flags_of(verb);
    CHECK(flags.empty() == (verb.make == nullptr && verb.tools.empty()));
    for (const Flag& flag : flags) CHECK(!flag.help.empty());
  }
}

TEST_CASE("a loss or an algorithm in place of a verb is explained") {
  const auto error = [](const std::string& word) {
    std::string what;
    try {
      find_verb(verbs(), word);
    } catch (const ConfigError& e) {
      what = e.what();
    }
    return what;
  };
  CHECK(error("kto").ends_with("; it is temper dpo with preference.loss=kto"));
  CHECK(error("rloo").ends_with("; it is temper grpo with rl.algorithm=rloo"));
  CHECK(error("stf").ends_with("; did you mean `sft`?"));
}
