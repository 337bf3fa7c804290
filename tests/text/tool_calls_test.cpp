// Calls of tools as the families of models write them, well formed and not.
#include "temper/text/chat/tool_calls.h"

#include <doctest/doctest.h>

#include <cstdlib>

#include "temper/base/file.h"
#include "temper/text/chat/python_calls.h"

using namespace temper;
using Format = ToolCallFormat;

namespace {

// "content | name{arguments} name{arguments} | problems"
std::string read(Format format, const std::string& text) {
  const SpokenTurn turn = parse_tool_calls(format, text);
  std::string out = turn.content + " |";
  for (const ToolCall& call : turn.calls) out += " " + call.name + dump_json(call.arguments);
  return out + " | " + std::to_string(turn.problems.size());
}

}  // namespace

TEST_CASE("Hermes and Qwen: any number of blocks, between words") {
  CHECK(read(Format::kHermes, "a word") == "a word | | 0");
  CHECK(read(Format::kHermes,
             "<think>x</think>\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n"
             "</tool_call>") == "<think>x</think> | f{\"x\":1} | 0");
  CHECK(read(Format::kHermes,
             "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n<tool_call>{\"name\":\"g\","
             "\"arguments\":\"{\\\"y\\\": [2]}\"}</tool_call> done") ==
        "done | f{} g{\"y\":[2]} | 0");
  // Cut short, but whole JSON.
  CHECK(read(Format::kHermes, "<tool_call>{\"name\": \"f\"}") == " | f{} | 0");
  for (const char* broken :
       {"<tool_call>{\"name\": \"f\", </tool_call>", "<tool_call>f(x=1)</tool_call>",
        "<tool_call>{\"arguments\": {}}</tool_call>", "<tool_call>[1]</tool_call>",
        "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>",
        "<tool_call>{\"name\": \"f\", \"arguments\": \"x\"}</tool_call>", "<tool_call>"})
    CHECK(read(Format::kHermes, broken) == " | | 1");
  // A problem says what was said.
  const SpokenTurn turn = parse_tool_calls(Format::kHermes, "<tool_call>nonsense</tool_call>");
  CHECK(turn.problems.at(0).find("nonsense") != std::string::npos);
}

TEST_CASE("Llama 3: JSON alone, behind the python tag, and Python") {
  CHECK(read(Format::kLlama, "It is {\"name\": 1}.") == "It is {\"name\": 1}. | | 0");
  CHECK(read(Format::kLlama, "{\"name\": \"f\", \"parameters\": {\"x\": \"1\"}}") ==
        " | f{\"x\":\"1\"} | 0");
  CHECK(read(Format::kLlama,
             "<|python_tag|>{\"name\": \"f\", \"parameters\": {\"x\": \";}\"}}; {\"name\": \"g\", "
             "\"parameters\": {}}") == " | f{\"x\":\";}\"} g{} | 0");
  CHECK(read(Format::kLlama, "<|python_tag|>brave_search.call(query=\"a b\")") ==
        " | brave_search{\"query\":\"a b\"} | 0");
  CHECK(read(Format::kLlama, "<|python_tag|>print(1 + 1)") ==
        " | code_interpreter{\"code\":\"print(1 + 1)\"} | 0");
  CHECK(read(Format::kLlama, "[f(x=1, y='b'), g()]") == " | f{\"x\":1,\"y\":\"b\"} g{} | 0");
  CHECK(read(Format::kLlama, "{\"name\": \"f\", \"parameters\"") == " | | 1");
  CHECK(read(Format::kLlama, "[f(1)]") == " | | 1");
  CHECK(read(Format::kLlama, "[1, 2]") == "[1, 2] | | 0");
}

TEST_CASE("Gemma: a block of code or JSON, or calls alone") {
  CHECK(read(Format::kGemma, "Let me see.\n```tool_code\nprint(f(x=[1, 2], y={'a': None}))\n```") ==
        "Let me see. | f{\"x\":[1,2],\"y\":{\"a\":null}} | 0");
  CHECK(read(Format::kGemma, "```tool_code\nf(x=-1.5)\ng(y=True)\n```") ==
        " | f{\"x\":-1.5} g{\"y\":true} | 0");
  CHECK(read(Format::kGemma, "```json\n{\"name\": \"f\", \"parameters\": {}}\n```") ==
        " | f{} | 0");
  for (const char* answer :
       {"```json\n{\"name\": \"Bob\", \"age\": 3}\n```", "{\"name\": \"Bob\", \"age\": 3}"})
    CHECK(read(Format::kGemma, answer) == std::string(answer) + " | | 0");
  CHECK(read(Format::kGemma, "[f(x=\"a\\nb\")]") == " | f{\"x\":\"a\\nb\"} | 0");
  CHECK(read(Format::kGemma, "```python\nf(x=1)\n```") == "```python\nf(x=1)\n``` | | 0");
  const std::string blocks = "See:\n```sh\nls\n```\n\n  or `x`\n```python\nf(x=1)\n``` here.";
  CHECK(read(Format::kGemma, blocks) == blocks + " | | 0");
  CHECK(read(Format::kGemma, blocks + "\n```tool_code\nf()\n```") == blocks + " | f{} | 0");
  CHECK(read(Format::kGemma, "```tool_code\nx = 1\n```") == " | | 1");
  CHECK(read(Format::kGemma, "```tool_code\nf(x=open('a'))\n```") == " | | 1");
}

TEST_CASE("Mistral: a list, or a name and its arguments") {
  CHECK(read(Format::kMistral,
             "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"x\": 1}}, "
             "{\"name\": \"g\", \"arguments\": {}}]") == " | f{\"x\":1} g{} | 0");
  CHECK(read(Format::kMistral, "So: [TOOL_CALLS]f[ARGS]{\"x\": 1}[TOOL_CALLS]g{}") ==
        "So: | f{\"x\":1} g{} | 0");
  CHECK(read(Format::kMistral, "[TOOL_CALLS]f[CALL_ID]123456789[ARGS]{}") == " | f{} | 0");
  CHECK(read(Format::kMistral, "[TOOL_CALLS] nothing") == " | | 1");
  CHECK(read(Format::kMistral, "[TOOL_CALLS] [{\"name\"") == " | | 1");
}

TEST_CASE("Python's literals, and what is none") {
  const auto arguments = [](const std::string& text) {
    try {
      const auto calls = parse_python_calls(text);
      return calls.size() == 1 ? dump_json(calls[0].arguments) : std::to_string(calls.size());
    } catch (const NotPython&) {
      return std::string("none");
    }
  };
  CHECK(arguments("f(a='''x'y''', b=\"\\\"\", c=(1, 2), d={}, e=[], f=1e3,)") ==
        R"({"a":"x'y","b":"\"","c":[1,2],"d":{},"e":[],"f":1000.0})");
  CHECK(arguments("f(a=1) g(b=2); h()") == "3");
  CHECK(arguments("") == "0");
  for (const char* broken : {"f(", "f(a=)", "f(a=1", "f(a=b)", "f(a='x)", "f(a={1: 2})", "f a=1)",
                             "f(a=1))", "[f(a=1)", "1", "f(a=[1,)", "f(a=--1)"})
    CHECK(arguments(broken) == "none");
  CHECK(arguments("f(a=" + std::string(10000, '[')) == "none");
  std::string prints;
  for (int i = 0; i < 100'000; ++i) prints += "print(";
  CHECK(arguments(prints) == "none");
}

TEST_CASE("the notation is found in the template") {
  const char* root = std::getenv("TEMPER_SOURCE_DIR");
  const auto format = [&](const std::string& name) {
    return tool_call_format(
        read_file(std::string(root ? root : ".") + "/tests/golden/templates/" + name + ".jinja"));
  };
  CHECK(format("qwen3") == Format::kHermes);
  CHECK(format("hermes") == Format::kHermes);
  CHECK(format("chatml") == Format::kHermes);
  CHECK(format("llama31") == Format::kLlama);
  CHECK(format("gemma3") == Format::kGemma);
  CHECK(format("mistral3") == Format::kMistral);
}

TEST_CASE("beside good calls, what begins like a call and is none stays in the text") {
  const SpokenTurn turn = parse_tool_calls(
      Format::kHermes,
      "a<tool_call>{\"name\": 1}</tool_call>b<tool_call>{\"name\": \"f\"}</tool_call><tool_call>{");
  CHECK(turn.content == "a\nb\n<tool_call>{\"name\": 1}</tool_call>\n<tool_call>{");
  REQUIRE(turn.calls.size() == 1);
  CHECK(turn.calls[0].name == "f");
  CHECK(turn.problems.size() == 2);
  const SpokenTurn list = parse_tool_calls(
      Format::kMistral,
      "[TOOL_CALLS] [{\"name\": 1}, {\"name\": 2}, {\"name\": \"f\", \"arguments\": {}}]");
  CHECK(list.problems.size() == 2);
  CHECK(list.calls.size() == 1);
  CHECK(list.content.find("{\"name\": 1}") == list.content.rfind("{\"name\": 1}"));
  const SpokenTurn blocks =
      parse_tool_calls(Format::kGemma, "```json\n{\"name\": \"f\"}\n```\n```tool_code\nf(a=)\n```");
  CHECK(blocks.calls.size() == 1);
  CHECK(blocks.content == "f(a=)");
}
