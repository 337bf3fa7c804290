// Environments that are programs, tools and classes, well behaved and not: sh is all that is
// needed.
#include "temper/env/pool.h"

#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "temper/base/error.h"

using namespace temper;
using namespace temper::env;
using Kind = Failure::Kind;

namespace {

// Seconds that no program of these tests needs, however busy the machine is.
constexpr double kAmple = 240;

EnvironmentSection shell(const std::string& script, int64_t workers = 2, double timeout = kAmple) {
  EnvironmentSection section;
  section.command = {"sh", "-c", script};
  section.workers = workers;
  section.timeout_seconds = timeout;
  section.start_timeout_seconds = 0.2;
  return section;
}

ToolSection tool(const std::string& name, const std::string& script) {
  ToolSection made;
  made.name = name;
  made.command = {"sh", "-c", script};
  return made;
}

std::shared_ptr<const Json> row(int number) {
  return std::make_shared<const Json>(Json{{"prompt", "p"}, {"n", number}});
}

Turn say(const std::string& text) { return {text, {}, {}}; }
Turn call(const std::string& name, const Json& arguments = Json::object()) {
  return {"", {{name, arguments}}, {}};
}

// Waits for answers of so many episodes, by number.
std::map<int64_t, Reply> answers(EnvironmentPool& pool, size_t count) {
  std::map<int64_t, Reply> out;
  for (int tries = 0; out.size() < count && tries < 3000; ++tries)
    for (Reply& reply : pool.take(std::chrono::milliseconds(100))) {
      const int64_t episode = reply.episode;
      out[episode] = std::move(reply);
    }
  CHECK(out.size() == count);
  return out;
}

std::string said(const Reply& reply) {
  std::string text;
  for (const Json& message : reply.observation.messages)
    text += message["content"].get<std::string>() + ";";
  return text;
}

size_t lines(const std::string& path) {
  std::ifstream file(path);
  size_t count = 0;
  for (std::string line; std::getline(file, line);) ++count;
  return count;
}

// Answers every reset and step, and counts the steps of each episode.
const char* const kCounts = R"S(
while read -r line; do
  e=${line#*\"episode\":}; e=${e%%,*}; e=${e%%\}*}
  case $line in
    *'"type":"reset"'*) eval "n$e=0"; echo "{\"episode\": $e, \"messages\": [{\"role\": \"user\", \"content\": \"pid $$\"}]}" ;;
    *'"type":"step"'*)
      eval "n$e=\$((n$e + 1)); n=\$n$e"
      case $line in *crash*) exit 7 ;; *hang*) sleep 60 ;; *garbage*) echo garbage; continue ;; esac
      echo "{\"messages\": [{\"role\": \"user\", \"content\": \"step $n\"}], \"reward\": $n, \"done\": false}" ;;
    *'"type":"close"'*) echo "$e" >> "${CLOSED:-/dev/null}" ;;
  esac
done
)S";

}  // namespace

TEST_CASE("episodes are told apart and spread over the workers, each is closed once") {
  const std::string closed = std::filesystem::temp_directory_path() / "temper-pool-test-closed";
  std::filesystem::remove(closed);
  {
    EnvironmentPool pool(shell("CLOSED=" + closed + "; " + kCounts));
    std::vector<int64_t> open;
    for (int i = 0; i < 6; ++i) open.push_back(pool.open(row(i)));
    const auto first = answers(pool, 6);
    std::map<std::string, int> workers;
    for (const auto& [episode, reply] : first) ++workers[said(reply)];
    CHECK(workers.size() == 2);
    for (const auto& [worker, count] : workers) CHECK(count == 3);
    for (int n = 1; n <= 3; ++n) {
      for (const int64_t episode : open)
        if (episode % 2 == 0 || n == 1) pool.step(episode, say("x"));
      for (const auto& [episode, reply] : answers(pool, n == 1 ? 6 : 3)) {
        CHECK(said(reply) == str("step ", n, ";"));
        CHECK(reply.observation.reward == n);
        CHECK_FALSE(reply.observation.done);
      }
    }
    for (const int64_t episode : open) pool.close(episode);
  }
  CHECK(lines(closed) == 6);
  std::filesystem::remove(closed);
}

TEST_CASE("a failure costs its episode alone: the others go on in a new process") {
  for (const auto& [words, kind] : std::map<std::string, Kind>{
           {"crash", Kind::kCrashed}, {"hang", Kind::kTimedOut}, {"garbage", Kind::kMalformed}}) {
    CAPTURE(words);
    // The greeting is the same in every process.
    std::string script = kCounts;
    script.replace(script.find("pid $$"), 6, "hello");
    EnvironmentPool pool(shell(script, 1, words == "hang" ? 5 : kAmple));
    std::vector<int64_t> open;
    for (int i = 0; i < 4; ++i) open.push_back(pool.open(row(i)));
    answers(pool, 4);
    for (const int64_t episode : open) pool.step(episode, say("x"));
    answers(pool, 4);
    for (const int64_t episode : open) pool.step(episode, say(episode == open[1] ? words : "x"));
    for (const auto& [episode, reply] : answers(pool, 4)) {
      CHECK(reply.failure.has_value() == (episode == open[1]));
      if (reply.failure) CHECK(static_cast<int>(reply.failure->kind) == static_cast<int>(kind));
      if (!reply.failure) CHECK(said(reply) == "step 2;");
    }
    pool.close(open[1]);
    for (const int64_t episode : open)
      if (episode != open[1]) pool.step(episode, say("x"));
    for (const auto& [episode, reply] : answers(pool, 3)) CHECK(said(reply) == "step 3;");
  }
}

TEST_CASE("an environment that does not repeat itself loses the episodes of its process") {
  EnvironmentPool pool(shell(kCounts, 1));  // greets with its process's number
  const int64_t a = pool.open(row(0)), b = pool.open(row(1));
  answers(pool, 2);
  pool.step(a, say("crash"));
  CHECK(answers(pool, 1).at(a).failure.has_value());
  pool.step(b, say("x"));
  const Reply lost = answers(pool, 1).at(b);
  REQUIRE(lost.failure.has_value());
  CHECK(lost.failure->detail.find("repeated") != std::string::npos);
  // The worker lives on.
  const int64_t c = pool.open(row(2));
  CHECK_FALSE(answers(pool, 1).at(c).failure.has_value());
}

TEST_CASE("programs that never answer, end at once, or answer something else") {
  struct Case {
    const char* script;
    Kind kind;
    const char* message;
  };
  for (const Case& c : std::vector<Case>{
           {"sleep 60 & sleep 60", Kind::kTimedOut, "gave no answer"},
           {"echo oops >&2; exit 3", Kind::kCrashed, "oops"},
           {"kill -SEGV $$", Kind::kCrashed, "signal 11"},
           {"while read -r l; do echo '[]'; done", Kind::kMalformed, "not a JSON object"},
           {"while read -r l; do echo '{}'; done", Kind::kMalformed, "`messages`"},
           {"while read -r l; do echo '{\"messages\": 1}'; done", Kind::kMalformed, "not a list"},
           {"while read -r l; do echo '{\"messages\": [{}]}'; done", Kind::kMalformed, "role"},
           {"while read -r l; do head -c 5000000 /dev/zero | tr '\\0' x; echo; done",
            Kind::kMalformed, "more than"}}) {
    CAPTURE(c.script);
    EnvironmentPool pool(shell(c.script, 2, c.kind == Kind::kTimedOut ? 1 : kAmple));
    std::vector<int64_t> open;
    for (int i = 0; i < 3; ++i) open.push_back(pool.open(row(i)));
    for (const auto& [episode, reply] : answers(pool, 3)) {
      REQUIRE(reply.failure.has_value());
      CHECK(static_cast<int>(reply.failure->kind) == static_cast<int>(c.kind));
      CHECK(reply.failure->detail.find(c.message) != std::string::npos);
    }
    for (const int64_t episode : open) pool.close(episode);
  }
}

TEST_CASE("answers to a step that are none") {
  for (const char* answer :
       {"{}", "{\"messages\": []}", "{\"done\": 1}", "{\"done\": true, \"reward\": \"x\"}",
        "{\"done\": true, \"reward\": 1e999}", "{\"done\": false, \"reward\": 1}",
        "{\"done\": true, \"tools\": [{\"name\": \"f\"}]}",
        "{\"done\": true, \"messages\": [{\"role\": 1}]}"}) {
    CAPTURE(answer);
    EnvironmentPool pool(shell(std::string("read -r l; echo '{\"messages\": []}'; "
                                           "while read -r l; do echo '") +
                               answer + "'; done"));
    const int64_t episode = pool.open(row(0));
    CHECK_FALSE(answers(pool, 1).at(episode).failure.has_value());
    pool.step(episode, say("x"));
    const Reply reply = answers(pool, 1).at(episode);
    REQUIRE(reply.failure.has_value());
    CHECK(static_cast<int>(reply.failure->kind) == static_cast<int>(Kind::kMalformed));
  }
}

TEST_CASE("answers that say what is wrong with them") {
  const auto detail = [](const std::string& reset, const std::string& step) {
    EnvironmentPool pool(
        shell("read -r l; echo '" + reset + "'; while read -r l; do echo '" + step + "'; done", 1));
    const int64_t episode = pool.open(row(0));
    Reply reply = answers(pool, 1).at(episode);
    if (!reply.failure) pool.step(episode, say("x")), reply = answers(pool, 1).at(episode);
    return reply.failure ? reply.failure->detail : "";
  };
  const std::string good = R"({"episode": 0, "messages": []})";
  const std::string end = R"({"reward": 1, "done": true})";
  CHECK(detail(good, end) == "");
  CHECK(detail(good, R"({"reward": 1, "done": true, "info": {"x": 2}})") == "");
  CHECK(detail(R"({"messages": [], "reward": 0, "done": false, "tools": null})", end) == "");
  CHECK(detail(R"({"messages": [], "tools": [{"name": "f"}]})", end) == "");
  for (const auto& [reset, step, message] : std::vector<std::array<std::string, 3>>{
           {good, R"({"messages": [], "rewards": 1, "done": false})",
            "unknown field `rewards`; did you mean `reward`?"},
           {R"({"message": []})", end, "unknown field `message`; did you mean `messages`?"},
           {R"({"messages": [], "reward": 1})", end, "`reward` of a reset is not 0"},
           {R"({"messages": [], "done": true})", end, "`done` is true at a reset"},
           {R"({"messages": [], "tools": [{"foo": 1}]})", end, "`tools` has {\"foo\":1}, expected"},
           {good, R"({"reward": 1, "done": false})", "`messages` is missing"},
           {R"({"episode": 8, "messages": []})", end, "answered for episode 8, expected 0"},
           {good, R"({"episode": 1, "messages": [], "done": true})",
            "answered for episode 1, expected 0"}}) {
    const auto begun = std::chrono::steady_clock::now();
    const std::string found = detail(reset, step);
    CAPTURE(found);
    CHECK(found.find(message) != std::string::npos);
    CHECK(std::chrono::steady_clock::now() - begun < std::chrono::duration<double>(kAmple));
  }
}

TEST_CASE(
    "late answers of episodes that timed out are discarded, and lines that nobody asked for") {
  // The second process gives the first one's late answer before its own.
  const std::string first = std::filesystem::temp_directory_path() / "temper-pool-test-late";
  std::filesystem::remove(first);
  EnvironmentPool pool(shell("if [ ! -e " + first + " ]; then touch " + first +
                                 "; sleep 60; fi; read -r l; echo '{\"episode\": 0, \"messages\": "
                                 "[]}'; echo '{\"episode\": 1, \"messages\": []}'; read -r l",
                             1, 5));
  const int64_t a = pool.open(row(0));
  const Reply timed_out = answers(pool, 1).at(a);
  REQUIRE(timed_out.failure.has_value());
  CHECK(static_cast<int>(timed_out.failure->kind) == static_cast<int>(Kind::kTimedOut));
  const int64_t b = pool.open(row(1));
  const Reply reply = answers(pool, 1).at(b);
  CHECK_FALSE(reply.failure.has_value());
  CHECK(reply.unasked_lines == 1);
  CHECK(reply.unasked.find("sh answered with a line that nobody asked for, `{\"episode\": 0") == 0);
  std::filesystem::remove(first);
}

TEST_CASE("a call without a required argument is told, and starts no program") {
  EnvironmentSection section = shell(kCounts);
  section.tools = {tool("add", "echo ran")};
  section.tools[0].parameters.json =
      R"({"properties": {"x": {"type": "integer"}}, "required": ["x"]})";
  for (const bool inner : {false, true}) {
    if (!inner) section.command.clear();
    if (inner) section.command = {"sh", "-c", kCounts};
    EnvironmentPool pool(section);
    const int64_t episode = pool.open(row(0));
    answers(pool, 1);
    Turn turn = call("add", {{"y", 1}});
    turn.calls.push_back({"add", {{"x", 1}}});
    pool.step(episode, turn);
    const Reply reply = answers(pool, 1).at(episode);
    CHECK(said(reply).starts_with("error: the call of `add` lacks the argument `x`;ran;"));
    CHECK(reply.unread_calls == 1);
  }
}

TEST_CASE("a program that ends after every answer is given up, not asked for ever") {
  EnvironmentPool pool(shell("read -r l; echo '{\"messages\": []}'", 1));
  const int64_t a = pool.open(row(0)), b = pool.open(row(1));
  for (const auto& [episode, reply] : answers(pool, 2)) CHECK_FALSE(reply.failure.has_value());
  pool.step(a, say("x"));
  pool.step(b, say("x"));
  for (const auto& [episode, reply] : answers(pool, 2)) CHECK(reply.failure.has_value());
}

TEST_CASE("tools: a program for each call; an episode ends with the first turn that calls none") {
  EnvironmentSection section;
  section.tools = {tool("echo", "read -r line; echo \"got $line\"; echo"),
                   tool("bad", "echo why >&2; exit 3"), tool("blind", "echo done")};
  section.timeout_seconds = kAmple;
  EnvironmentPool pool(section);
  const int64_t episode = pool.open(row(0));
  const Reply first = answers(pool, 1).at(episode);
  REQUIRE(first.observation.tools.size() == 3);
  CHECK(first.observation.tools[0]["type"] == "function");
  CHECK(first.observation.tools[0]["function"]["name"] == "echo");
  CHECK(first.observation.tools[0]["function"]["parameters"] == Json::object());

  Turn two = call("echo", {{"x", 1}});
  two.calls.push_back({"blind", Json::object()});
  two.calls.push_back({"none", Json::object()});
  two.problems.push_back("why it is none");
  pool.step(episode, two);
  const Reply many = answers(pool, 1).at(episode);
  CHECK(said(many).starts_with("got {\"x\":1}\n;done;error: there is no tool `none`"));
  CHECK(said(many).find("why it is none") != std::string::npos);
  CHECK(many.observation.messages[0]["role"] == "tool");
  CHECK(many.observation.messages[0]["name"] == "echo");
  CHECK(many.unread_calls == 1);
  CHECK_FALSE(many.observation.done);

  pool.step(episode, call("bad"));
  const Reply bad = answers(pool, 1).at(episode);
  CHECK(said(bad).find("status 3; why") != std::string::npos);
  REQUIRE(bad.tool_failures.size() == 1);
  CHECK(static_cast<int>(bad.tool_failures[0].kind) == static_cast<int>(Kind::kCrashed));
  CHECK_FALSE(bad.observation.done);
  pool.step(episode, say("the end"));
  CHECK(answers(pool, 1).at(episode).observation.done);
}

TEST_CASE("a tool that takes too long is a failure, and its episode goes on") {
  EnvironmentSection section;
  section.tools = {tool("slow", "sleep 600")};
  section.timeout_seconds = 0.5;
  EnvironmentPool pool(section);
  const int64_t episode = pool.open(row(0));
  answers(pool, 1);
  pool.step(episode, call("slow"));
  const Reply slow = answers(pool, 1).at(episode);
  REQUIRE(slow.tool_failures.size() == 1);
  CHECK(static_cast<int>(slow.tool_failures[0].kind) == static_cast<int>(Kind::kTimedOut));
  CHECK_FALSE(slow.observation.done);
}

TEST_CASE("a tool costs what it takes, and holds no other") {
  // Each tool that lingers is given 200 ms to end: 6 s if they were waited for one after another.
  constexpr size_t kTools = 32;
  EnvironmentSection section;
  section.workers = kTools;
  section.timeout_seconds = kAmple;
  section.tools = {tool("lingers", "echo soon; exec >&- 2>&-; sleep 600"),
                   tool("leaves_one_behind", "sleep 600 & echo behind"), tool("quick", "echo now")};
  EnvironmentPool pool(section);
  std::vector<int64_t> open;
  for (size_t i = 0; i < kTools; ++i) open.push_back(pool.open(row(0)));
  answers(pool, kTools);
  const auto begun = std::chrono::steady_clock::now();
  for (size_t i = 0; i < kTools; ++i)
    pool.step(open[i], call(i == 0 ? "leaves_one_behind" : i == kTools - 1 ? "quick" : "lingers"));
  const auto all = answers(pool, kTools);
  CHECK(std::chrono::steady_clock::now() - begun < std::chrono::milliseconds(5500));
  for (size_t i = 0; i < kTools; ++i) {
    CHECK(said(all.at(open[i])) == (i == 0 ? "behind;" : i == kTools - 1 ? "now;" : "soon;"));
    CHECK(all.at(open[i]).tool_failures.empty());
  }
}

TEST_CASE("a program that closes its output and stays holds no other") {
  // Each closes its output at the first step. It is given 100 ms to end: all of them at once, not
  // one after another, which would take 4 s.
  constexpr size_t kPrograms = 40;
  EnvironmentPool pool(
      shell("read -r line; echo '{\"messages\": []}'; read -r line; exec >&- 2>&-; sleep 600",
            kPrograms));
  std::vector<int64_t> open;
  for (size_t i = 0; i < kPrograms; ++i) open.push_back(pool.open(row(0)));
  answers(pool, kPrograms);
  const auto begun = std::chrono::steady_clock::now();
  for (const int64_t episode : open) pool.step(episode, say("x"));
  for (const auto& [episode, reply] : answers(pool, kPrograms)) {
    REQUIRE(reply.failure.has_value());
    CHECK(static_cast<int>(reply.failure->kind) == static_cast<int>(Kind::kCrashed));
  }
  CHECK(std::chrono::steady_clock::now() - begun < std::chrono::milliseconds(3500));
}

TEST_CASE("tools beside an environment: it says when an episode ends, and knows tools of its own") {
  EnvironmentSection section = shell(kCounts);
  section.tools = {tool("blind", "echo done")};
  EnvironmentPool pool(section);
  const int64_t episode = pool.open(row(0));
  const Reply first = answers(pool, 1).at(episode);
  CHECK(first.observation.tools.size() == 1);
  CHECK(first.observation.messages.size() == 1);
  Turn turn = call("blind");
  turn.calls.push_back({"its own", Json::object()});
  pool.step(episode, turn);
  CHECK(said(answers(pool, 1).at(episode)) == "done;step 1;");
  pool.step(episode, say("x"));
  const Reply next = answers(pool, 1).at(episode);
  CHECK(said(next) == "step 2;");
  CHECK_FALSE(next.observation.done);
}

TEST_CASE("closing an episode that waits holds nothing up") {
  EnvironmentPool pool(shell(kCounts, 1, 30));
  const int64_t a = pool.open(row(0)), b = pool.open(row(1));
  answers(pool, 2);
  pool.step(a, say("x"));
  pool.close(a);
  pool.step(b, say("x"));
  const auto left = answers(pool, 1);
  CHECK(left.begin()->second.observation.reward == 1);
}

TEST_CASE("environments in this process") {
  EnvironmentSection section;
  section.name = "calculator";
  EnvironmentPool pool(section);
  const auto open = [&](const Json& answer) {
    return pool.open(std::make_shared<const Json>(Json{{"prompt", "p"}, {"answer", answer}}));
  };
  const int64_t right = open(42), wrong = open("#### 1,042");
  CHECK(answers(pool, 2).at(right).observation.tools[0]["function"]["name"] == "calculator");
  for (const auto& [expression, value] : std::map<std::string, std::string>{
           {"6 * 7", "42;"},
           {"2 * (3 + -4) / 8", "-0.25;"},
           {"1 / 0", "error: the result is not a finite number;"},
           {"1 +", "error: expected a number at byte 3;"},
           {"1 2", "error: found `2` where the expression should end;"}}) {
    pool.step(right, call("calculator", {{"expression", expression}}));
    CHECK(said(answers(pool, 1).at(right)) == value);
  }
  pool.step(right, call("other"));
  CHECK(said(answers(pool, 1).at(right)).starts_with("error"));
  pool.step(right, say("It is 42."));
  pool.step(wrong, say("It is 42."));
  const auto ends = answers(pool, 2);
  CHECK(ends.at(right).observation.done);
  CHECK(ends.at(right).observation.reward == 1);
  CHECK(ends.at(wrong).observation.reward == 0);
  // What the row lacks is the user's to put right.
  pool.open(row(0));
  CHECK_THROWS_WITH_AS(answers(pool, 1), doctest::Contains("`answer`"), DataError);
}

TEST_CASE("the grid world: hints lead to what lies there") {
  const auto world = environments().find("grid_world")();
  Observation now = world->reset({{"size", 3}, {"start", {0, 0}}, {"goal", {1, 2}}});
  CHECK(now.messages[0]["content"] == "it lies north and east");
  CHECK(world->step(say("west")).messages[0]["content"] == "a wall; it lies north and east");
  CHECK(world->step(say("hm")).messages[0]["content"].get<std::string>().starts_with("say north"));
  CHECK(world->step(say("go north, not south")).messages[0]["content"] == "it lies north and east");
  CHECK(world->step(say("east")).messages[0]["content"] == "it lies north");
  now = world->step(say("north"));
  CHECK(now.done);
  CHECK(now.reward == 1);
  CHECK_THROWS_AS(environments().find("grid_world")()->reset({{"goal", {9, 9}}}), DataError);
}

TEST_CASE("sections that are wrong say what is") {
  const auto problem = [](const std::function<void(EnvironmentSection&)>& set) {
    EnvironmentSection section;
    set(section);
    try {
      return find_problem(section);
    } catch (const ConfigError& e) {
      return std::string(e.what());
    }
  };
  CHECK(problem([](auto& s) { s.name = "calculator"; }).empty());
  CHECK(problem([](auto& s) { s.name = "calculater"; }).find("calculator") != std::string::npos);
  CHECK(problem([](auto& s) {
          s.name = "calculator";
          s.command = {"sh"};
        }).find("one of them") != std::string::npos);
  CHECK(problem([](auto& s) {
          s.command = {"no-such-program"};
        }).find("environment.command: the command `no-such-program`") != std::string::npos);
  CHECK(problem([](auto& s) { s.tools = {tool("a", ""), tool("a", "")}; }).find("two tools") !=
        std::string::npos);
  CHECK(problem([](auto& s) {
          s.tools = {tool("a", "")};
          s.tools[0].command.clear();
        }).find("tools[0].command") != std::string::npos);
  CHECK(problem([](auto& s) {
          s.tools = {tool("a", "")};
          s.tools[0].parameters.json = R"({"type": "string"})";
        }).find("parameters") != std::string::npos);
  CHECK(
      problem([](auto& s) { s.tools = {tool("a b\n", "")}; }) ==
      "environment.tools[0].name: found \"a b\\n\", expected at most 64 letters, digits and _ - . "
      ": /");
  CHECK(problem([](auto& s) {
          s.tools = {tool("a", "")};
          s.tools[0].parameters.json = R"({"properties": {"x": {"type": "banana"}}})";
        }).find("tools[0].parameters.properties.x.type: found \"banana\", expected") !=
        std::string::npos);
  CHECK(problem([](auto& s) {
          s.tools = {tool("a", "")};
          s.tools[0].parameters.json = R"({"required": [5]})";
        }).find("tools[0].parameters.required: found [5]") != std::string::npos);
  CHECK(problem([](auto& s) { s.command = {"cat -n"}; }) ==
        "environment.command: the command `cat -n` is not found in PATH; write a program and its "
        "arguments as a list: [cat, ..]");
}

TEST_CASE("parameters of tools are YAML, or JSON text, and are written as they were read") {
  EnvironmentSection section;
  const auto read = [&](const std::string& yaml) {
    section = {};
    read_fields(parse_yaml(yaml, "run.yaml"), "environment", Fields::of(section));
  };
  const char* const expected =
      R"({"type":"object","properties":{"x":{"type":"string","enum":["1","b"],"default":1.5,"deep":null,"ok":true}},"required":["x"]})";
  read(
      "tools: [{name: f, command: [sh], parameters: {type: object, properties: {x: {type: string, "
      "enum: ['1', b], default: 1.5, deep: null, ok: true}}, required: [x]}}]");
  CHECK(section.tools.at(0).parameters.json == expected);
  const std::string written = dump_yaml(write_fields(Fields::of(section)));
  read(written);
  CHECK(section.tools.at(0).parameters.json == expected);
  read(std::string("tools: [{name: f, command: sh, parameters: '") + expected + "'}]");
  CHECK(section.tools.at(0).parameters.json == expected);
  CHECK(section.tools.at(0).command == std::vector<std::string>{"sh"});
  CHECK_THROWS_WITH_AS(read("tools: [{name: f, parameters: [1]}]"), doctest::Contains("run.yaml:1"),
                       ConfigError);
  read("command: null");
  CHECK_FALSE(section.any());
}
