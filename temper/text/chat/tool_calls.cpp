#include "temper/text/chat/tool_calls.h"

#include <algorithm>

#include "temper/base/error.h"
#include "temper/text/chat/python_calls.h"

namespace temper {
namespace {

constexpr size_t kQuoted = 120;  // characters of the turn's text that a problem quotes
constexpr std::string_view kPythonTag = "<|python_tag|>", kToolCalls = "[TOOL_CALLS]";

std::string_view trimmed(std::string_view text) {
  constexpr const char* kSpace = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

std::string quoted(std::string_view text) {
  return "`" + std::string(text.substr(0, kQuoted)) + (text.size() > kQuoted ? "..." : "") + "`";
}

// The JSON object or list that the text begins with; empty: it does not end.
std::string_view json_prefix(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if ((c == '}' || c == ']') && --depth == 0) {
      return text.substr(0, i + 1);
    }
  }
  return {};
}

class Parser {
 public:
  explicit Parser(SpokenTurn& turn) : turn_(turn) {}

  // Begins a part of the turn, to which problems from here on belong.
  void begin(std::string_view part) { part_ = part; }
  void problem(const std::string& why, std::string_view said) {
    turn_.problems.push_back(why + ": " + quoted(trimmed(said)));
    const std::string_view whole = part_.empty() ? said : part_;
    if (rejected_.empty() || rejected_.back() != whole) rejected_.push_back(whole);
  }
  // In a turn with calls, keeps the texts that could not be parsed as one.
  void keep_rejected() {
    if (!turn_.calls.empty())
      for (const std::string_view said : rejected_) say(said);
  }
  void say(std::string_view text) {
    const std::string_view said = trimmed(text);
    if (said.empty()) return;
    if (!turn_.content.empty()) turn_.content += "\n";
    turn_.content += said;
  }

  // {"name": text, "arguments" or "parameters": object or its JSON text}.
  void call(const Json& json, std::string_view said) {
    constexpr const char* kExpected = R"(a call is {"name": text, "arguments": {..}})";
    if (!json.is_object() || !json.contains("name") || !json["name"].is_string())
      return problem(kExpected, said);
    ToolCall call{json["name"].get<std::string>()};
    for (const char* key : {"arguments", "parameters"}) {
      const auto found = json.find(key);
      if (found == json.end() || found->is_null()) continue;
      call.arguments = *found;
      break;
    }
    if (call.arguments.is_string()) {
      try {
        const auto text = call.arguments.get<std::string>();
        call.arguments = parse_json(text, "arguments");
      } catch (const DataError& e) {
        return problem(e.what(), said);
      }
    }
    if (!call.arguments.is_object())
      return problem("a call's arguments are an object by their names", said);
    turn_.calls.push_back(std::move(call));
  }
  void json_call(std::string_view said) {
    try {
      const Json json = parse_json(trimmed(said), "the call");
      if (!json.is_array()) return call(json, said);
      for (const Json& one : json) call(one, said);
    } catch (const DataError& e) {
      problem(e.what(), said);
    }
  }
  void python_calls(std::string_view said) {
    begin(said);
    try {
      for (ToolCall& call : parse_python_calls(said)) turn_.calls.push_back(std::move(call));
    } catch (const NotPython& e) {
      problem(e.why, said);
    }
  }
  // Objects one after the other, with semicolons or commas between them.
  void json_calls(std::string_view text) {
    while (!(text = trimmed(text)).empty()) {
      const std::string_view one = json_prefix(text);
      begin(one);
      if (one.empty()) return problem("the call's JSON does not end", text);
      json_call(one);
      text = trimmed(text.substr(one.size()));
      if (!text.empty() && (text[0] == ';' || text[0] == ',')) {
        text.remove_prefix(1);
      } else if (!text.empty() && text[0] != '{') {
        return say(text);
      }
    }
  }

 private:
  SpokenTurn& turn_;
  std::string_view part_;
  std::vector<std::string_view> rejected_;
};

void parse_hermes(std::string_view text, Parser& parser) {
  constexpr std::string_view kBegin = "<tool_call>", kEnd = "</tool_call>";
  while (true) {
    const size_t begin = text.find(kBegin);
    parser.say(text.substr(0, begin));
    if (begin == std::string_view::npos) return;
    text.remove_prefix(begin);
    const size_t end = text.find(kEnd);
    parser.begin(text.substr(0, end == std::string_view::npos ? end : end + kEnd.size()));
    text.remove_prefix(kBegin.size());
    parser.json_call(text.substr(0, end == std::string_view::npos ? end : end - kBegin.size()));
    if (end == std::string_view::npos) return;
    text.remove_prefix(end - kBegin.size() + kEnd.size());
  }
}

// Whether a JSON object or a list in brackets looks like calls, not like an answer.
bool looks_like_json_call(std::string_view text) {
  const auto has = [text](std::string_view part) { return text.find(part) != text.npos; };
  // An answer may have a name, too: a call has arguments beside it, or nothing.
  const bool calls = has("\"arguments\"") || has("\"parameters\"") || !has(",");
  return text.starts_with('{') && text.substr(0, 40).find("\"name\"") != text.npos && calls;
}
bool looks_like_python_list(std::string_view text) {
  return text.starts_with('[') && begins_python_call(trimmed(text.substr(1)));
}

void parse_llama(std::string_view text, Parser& parser) {
  const size_t tag = text.find(kPythonTag);
  if (tag != std::string_view::npos) {
    parser.say(text.substr(0, tag));
    const std::string_view code = trimmed(text.substr(tag + kPythonTag.size()));
    if (code.starts_with('{')) return parser.json_calls(code);
    if (begins_python_call(code) && code.substr(0, code.find('(')).ends_with(".call"))
      return parser.python_calls(code);
    return parser.call(Json{{"name", "code_interpreter"}, {"arguments", {{"code", code}}}}, code);
  }
  text = trimmed(text);
  if (looks_like_json_call(text)) return parser.json_calls(text);
  if (looks_like_python_list(text)) return parser.python_calls(text);
  parser.say(text);
}

void parse_gemma(std::string_view text, Parser& parser) {
  constexpr std::string_view kFence = "```";
  const std::string_view all = trimmed(text);
  if (looks_like_json_call(all)) return parser.json_calls(all);
  if (looks_like_python_list(all)) return parser.python_calls(all);
  size_t from = 0;  // code blocks before it are part of what is said
  while (true) {
    const size_t begin = text.find(kFence, from);
    const size_t line = begin == std::string_view::npos ? begin : text.find('\n', begin);
    if (line == std::string_view::npos) return parser.say(text);
    const std::string_view kind = trimmed(text.substr(begin + kFence.size(), line - begin - 3));
    const size_t end = std::min(text.find(kFence, line), text.size());
    const std::string_view block = trimmed(text.substr(line, end - line));
    const size_t next = std::min(end + kFence.size(), text.size());
    const bool asked = kind == "tool_code" || kind == "tool_call" || kind == "function_call";
    if (!asked && !(kind == "json" && looks_like_json_call(block))) {
      from = next;
      continue;
    }
    parser.say(text.substr(0, begin));
    if (block.starts_with('{'))
      parser.json_calls(block);
    else
      parser.python_calls(block);
    text.remove_prefix(next);
    from = 0;
  }
}

void parse_mistral(std::string_view text, Parser& parser) {
  constexpr std::string_view kArguments = "[ARGS]", kId = "[CALL_ID]";
  size_t begin = text.find(kToolCalls);
  parser.say(text.substr(0, begin));
  while (begin != std::string_view::npos) {
    text.remove_prefix(begin + kToolCalls.size());
    begin = text.find(kToolCalls);
    const std::string_view said = trimmed(text.substr(0, begin));
    parser.begin(said);
    if (said.starts_with('[')) {
      parser.json_call(said);
      continue;
    }
    const size_t arguments = said.find('{');
    std::string_view name = said.substr(0, arguments);
    name = trimmed(name.substr(0, std::min(name.find(kArguments), name.find(kId))));
    if (arguments == std::string_view::npos || name.empty()) {
      parser.problem("a call is a list of {\"name\", \"arguments\"}, or name[ARGS]{..}", said);
      continue;
    }
    parser.call(Json{{"name", name}, {"arguments", said.substr(arguments)}}, said);
  }
}

}  // namespace

ToolCallFormat tool_call_format(std::string_view source) {
  const auto shows = [&](std::string_view text) {
    return source.find(text) != std::string_view::npos;
  };
  if (shows("<tool_call>")) return ToolCallFormat::kHermes;
  if (shows(kToolCalls)) return ToolCallFormat::kMistral;
  if (shows(kPythonTag) || shows("<|start_header_id|>")) return ToolCallFormat::kLlama;
  if (shows("<start_of_turn>")) return ToolCallFormat::kGemma;
  return ToolCallFormat::kHermes;
}

SpokenTurn parse_tool_calls(ToolCallFormat format, std::string_view text) {
  SpokenTurn turn;
  Parser parser(turn);
  switch (format) {
    case ToolCallFormat::kLlama:
      parse_llama(text, parser);
      break;
    case ToolCallFormat::kGemma:
      parse_gemma(text, parser);
      break;
    case ToolCallFormat::kMistral:
      parse_mistral(text, parser);
      break;
    case ToolCallFormat::kAuto:
    case ToolCallFormat::kHermes:
      parse_hermes(text, parser);
  }
  parser.keep_rejected();
  return turn;
}

}  // namespace temper
