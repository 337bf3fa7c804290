// Tools of MCP servers, well behaved and not: sh is all that is needed.
#include <doctest/doctest.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/env/pool.h"

using namespace temper;
using namespace temper::env;

namespace {

// A server with the tools echo, big, which it says on a second page, and what `calls` makes of a
// call, whose id is $id; it asks the client something before it lists the first ones.
std::string server(const std::string& calls) {
  return R"(while read -r line; do
  id=${line#*\"id\":}; id=${id%%,*}
  case $line in
  *'"method":"initialize"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}';;
  *'"method":"tools/list"'*'"cursor":"more"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"tools":[{"name":"big"}]}}';;
  *'"method":"tools/list"'*)
    echo '{"jsonrpc":"2.0","id":"x","method":"roots/list"}'; read -r refusal
    case $refusal in *'"id":"x","error":{"code":-32601'*) ;; *) exit 7;; esac
    echo '{"jsonrpc":"2.0","method":"notifications/message","params":{}}'
    echo '{"jsonrpc":"2.0","id":'$id',"result":{"nextCursor":"more","tools":[{"name":"echo","description":"says it again","inputSchema":{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}}]}}';;
  *'"method":"tools/call"'*) )" +
         calls + R"(;;
  esac
done)";
}

EnvironmentSection section_of(const std::string& script, double timeout = 240) {
  EnvironmentSection section;
  section.tools.emplace_back().mcp = {"sh", "-c", script};
  section.timeout_seconds = timeout;
  section.start_timeout_seconds = 240;
  return section;
}

Reply next_reply(EnvironmentPool& pool) {
  for (int tries = 0; tries < 3000; ++tries)
    for (Reply& reply : pool.take(std::chrono::milliseconds(100))) return std::move(reply);
  FAIL("no answer");
  return {};
}

int64_t opened(EnvironmentPool& pool, Reply& first) {
  const int64_t episode = pool.open(std::make_shared<const Json>(Json{{"prompt", "p"}}));
  first = next_reply(pool);
  return episode;
}

// The messages that answer one turn of these calls.
Json messages_of(EnvironmentPool& pool, std::vector<ToolCall> calls) {
  Reply reply;
  const int64_t episode = opened(pool, reply);
  pool.step(episode, {"", std::move(calls), {}});
  const Json messages = next_reply(pool).observation.messages;
  pool.close(episode);
  return messages;
}

std::string start_problem(const std::string& script, double timeout = 240) {
  EnvironmentSection section = section_of(script, timeout);
  if (timeout < 1) section.start_timeout_seconds = timeout;
  try {
    EnvironmentPool pool(section);
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("the tools of an MCP server are the model's, and it answers their calls") {
  EnvironmentPool pool(section_of(server(
      R"(t=${line#*\"text\":\"}; t=${t%%\"*}
      echo '{"jsonrpc":"2.0","id":'$id',"result":{"content":[{"type":"text","text":"got '$t'"},{"type":"image","data":""}],"isError":false}}')")));
  Reply first;
  opened(pool, first);
  REQUIRE(first.observation.tools.size() == 2);
  CHECK(first.observation.tools[0].dump() ==
        R"({"type":"function","function":{"name":"echo","description":"says it again",)"
        R"("parameters":{"type":"object","properties":{"text":{"type":"string"}},)"
        R"("required":["text"]}}})");
  CHECK(first.observation.tools[1]["function"]["name"] == "big");
  const Json messages =
      messages_of(pool, {{"echo", {{"text", "one"}}}, {"echo", {{"text", "two"}}}, {"no", {}}});
  REQUIRE(messages.size() == 3);
  CHECK(messages[0]["content"] == "got one\n[image]");
  CHECK(messages[1]["content"] == "got two\n[image]");
  CHECK(messages[2]["content"] == "error: there is no tool `no`; there are echo, big");
  CHECK(messages_of(pool, {{"echo", Json::object()}})[0]["content"] ==
        "error: the call of `echo` lacks the argument `text`");
}

TEST_CASE("a call's error is the tool's answer, and one that takes too long fails alone") {
  EnvironmentPool errors(section_of(
      server(R"(echo '{"jsonrpc":"2.0","id":'$id',"error":{"code":-1,"message":"not today"}}')")));
  CHECK(messages_of(errors, {{"big", Json::object()}})[0]["content"] == "error: not today");
  EnvironmentPool refused(section_of(server(
      R"(echo '{"jsonrpc":"2.0","id":'$id',"result":{"content":[{"type":"text","text":"no"}],"isError":true}}')")));
  CHECK(messages_of(refused, {{"big", Json::object()}})[0]["content"] == "error: no");
  EnvironmentPool slow(section_of(server("true"), 0.5));
  Reply reply;
  const int64_t episode = opened(slow, reply);
  slow.step(episode, {"", {{"big", Json::object()}}, {}});
  reply = next_reply(slow);
  REQUIRE(reply.tool_failures.size() == 1);
  CHECK(reply.tool_failures[0].kind == Failure::Kind::kTimedOut);
  CHECK(reply.tool_failures[0].detail == "the tool big gave no answer within 0.5 s");
}

TEST_CASE("a server that ends, or writes what is no message, ends the run by its name") {
  for (const auto& [calls, said] :
       {std::pair{"echo broken >&2; exit 3", "the server sh exited with status 3; broken"},
        std::pair{"echo hello", "writes a line that is no JSON to its standard output: `hello`"},
        std::pair{"head -c 5000000 /dev/zero | tr '\\0' x",
                  "a message of more than 4194304 bytes"}}) {
    EnvironmentPool pool(section_of(server(calls)));
    Reply reply;
    const int64_t episode = opened(pool, reply);
    pool.step(episode, {"", {{"big", Json::object()}}, {}});
    std::string problem;
    try {
      next_reply(pool);
    } catch (const RunError& e) {
      problem = e.what();
    }
    CHECK(problem.starts_with("environment.tools[0].mcp: "));
    CHECK(problem.find(said) != std::string::npos);
  }
}

TEST_CASE("what is wrong with a server at its start is an error of the config") {
  CHECK(start_problem("exit 3") ==
        "environment.tools[0].mcp: the server sh exited with status 3 before it answered "
        "`initialize`");
  CHECK(start_problem("sleep 600", 0.2).find("did not answer `initialize` in time") !=
        std::string::npos);
  const auto lists = [](const std::string& tools) {
    return R"(read -r a; echo '{"id":1,"result":{"protocolVersion":"1"}}'; read -r a; read -r a
      echo '{"id":2,"result":{"tools":)" +
           tools + "}}'; sleep 600";
  };
  CHECK(start_problem(lists("[]")).find("sh lists no tool") != std::string::npos);
  CHECK(start_problem(lists("3")).find("without a list of tools") != std::string::npos);
  CHECK(start_problem(lists(R"([{"name":"a b"}])")).find("tool a b.name: found") !=
        std::string::npos);
  CHECK(start_problem(lists(R"([{"name":"a"},{"name":"a"}])")).find("two tools are called `a`") !=
        std::string::npos);
  CHECK(start_problem(lists(R"([{"name":"a","inputSchema":{"type":"string"}}])"))
            .find("expected object") != std::string::npos);

  EnvironmentSection both = section_of("true");
  both.tools[0].name = "x";
  CHECK(find_problem(both).starts_with("environment.tools[0].mcp: found beside other keys"));
  both.tools[0].name.clear();
  both.tools[0].mcp = {"there-is-no-such-program"};
  CHECK(find_problem(both).starts_with("environment.tools[0].mcp: the command"));
}
