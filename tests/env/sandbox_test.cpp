// The key `sandbox` of environments: programs and tools write to their own directories alone.
#include <doctest/doctest.h>

#include <filesystem>

#include "temper/base/error.h"
#include "temper/env/pool.h"

using namespace temper;
using namespace temper::env;

namespace {

constexpr double kAmpleSeconds = 240;

// The answer to the first turn, which calls the tool `t` with no arguments.
std::string first_answer(const EnvironmentSection& section) {
  EnvironmentPool pool(section);
  const int64_t episode = pool.open(std::make_shared<const Json>(Json{{"prompt", "p"}}));
  for (int asked = 0, tries = 0; tries < 3000; ++tries)
    for (const Reply& reply : pool.take(std::chrono::milliseconds(100))) {
      CHECK_FALSE(reply.failure.has_value());
      if (asked++ == 0)
        pool.step(episode, {"", {{"t", Json::object()}}, {}});
      else
        return reply.observation.messages.at(0)["content"].get<std::string>();
    }
  return "no answer";
}

EnvironmentSection sandboxed() {
  EnvironmentSection section;
  section.timeout_seconds = kAmpleSeconds;
  section.start_timeout_seconds = kAmpleSeconds;
  section.limits.sandbox.on = true;
  return section;
}

constexpr const char* kWrites =
    "echo kept > $TMPDIR/a; cat $TMPDIR/a; echo 1 > ./made-in-a-sandbox || echo refused";

}  // namespace

TEST_CASE("environments and tools in a sandbox, where there are any; elsewhere they are refused") {
  EnvironmentSection tools = sandboxed();
  tools.tools.push_back(
      {.name = "t", .description = {}, .parameters = {}, .command = {}, .mcp = {}});
  tools.tools[0].command = {"sh", "-c", kWrites};
  EnvironmentSection program = sandboxed();
  program.command = {"sh", "-c",
                     std::string("read -r l; echo '{\"messages\": []}'; read -r l; echo "
                                 "'{\"messages\": [{\"role\": \"user\", \"content\": \"'$(") +
                         kWrites + ")'\"}], \"done\": true, \"reward\": 0}'; read -r l"};
  const std::string problem = find_problem(tools);
  if (!problem.empty()) {
    MESSAGE("no sandboxes here: ", problem);
    CHECK(problem.starts_with("environment.sandbox: not possible here: "));
    CHECK_THROWS_AS(EnvironmentPool{program}, ConfigError);
    return;
  }
  CHECK(first_answer(tools) == "kept\nrefused");
  CHECK(first_answer(program) == "kept refused");
  CHECK(!std::filesystem::exists("made-in-a-sandbox"));
}

TEST_CASE("a sandbox without a program, or of an agent without the network, is refused") {
  EnvironmentSection section = sandboxed();
  section.name = "calculator";
  CHECK(find_problem(section).starts_with("environment.sandbox: found, but no program"));
  section.name.clear();
  section.openai.command = {"sh"};
  CHECK(find_problem(section).find("write sandbox: {network: true}") != std::string::npos);
}
