// Parsing of tool calls in the assistant's text, in the formats of the families of chat templates.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "temper/base/json.h"

namespace temper {

// kHermes (Hermes, Qwen): <tool_call>{"name": .., "arguments": {..}}</tool_call>, any number.
// kLlama (Llama 3): {"name": .., "parameters": {..}} alone, several with ';' between them, also
// after <|python_tag|>, which f.call(x=1) and plain Python may follow too (Python is a call of
// code_interpreter with its `code`); or [f(x=1), g()]. kGemma: f(x=1) or the JSON in a ```tool_code
// block, or alone in brackets. kMistral: [TOOL_CALLS] [{"name": .., "arguments": {..}}], or
// [TOOL_CALLS]name[ARGS]{..}. kAuto: what the template's own text shows.
enum class ToolCallFormat { kAuto, kHermes, kLlama, kGemma, kMistral };

// Recognizes the format by a template's source; kHermes where it shows none of the others.
ToolCallFormat tool_call_format(std::string_view template_source);

struct ToolCall {
  std::string name;
  Json arguments = Json::object();
};

struct SpokenTurn {
  std::string content;  // text outside of the calls, without space around it
  std::vector<ToolCall> calls;
  std::vector<std::string> problems;  // why something that begins like a call is none
};

// `text` is the turn with its special tokens, but without the end token. Never throws for what a
// model may have said. `format` is not kAuto.
SpokenTurn parse_tool_calls(ToolCallFormat format, std::string_view text);

}  // namespace temper
