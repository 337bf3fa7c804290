#include "temper/serve/tool_turn.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace temper::serve {
namespace {

// The arguments of the named function, or a list of {"name", "parameters"}.
void add_forced(const CompletionRequest& request, const Json& said, SpokenCalls& out) {
  if (request.tool_choice == ToolChoice::kNamed) {
    out.calls.push_back({request.tool_name, dump_json(said)});
    return;
  }
  for (const Json& call : said)
    out.calls.push_back({call.at("name").get<std::string>(), dump_json(call.at("parameters"))});
}

}  // namespace

SpokenCalls spoken_calls(const CompletionRequest& request, ToolCallFormat format,
                         const Tokenizer& tokenizer, std::span<const int32_t> tokens,
                         const std::string& text) {
  SpokenCalls out{text, {}};
  if (request.tool_choice != ToolChoice::kAuto) {
    const Json said = Json::parse(text, nullptr, false);
    if (said.is_discarded()) return out;  // cut off
    out.content.clear();
    add_forced(request, said, out);
    return out;
  }
  // Marks of calls may be special tokens; the end token is none of them.
  while (!tokens.empty() && tokenizer.is_special(tokens.back()))
    tokens = tokens.first(tokens.size() - 1);
  const SpokenTurn turn = parse_tool_calls(format, tokenizer.decode(tokens));
  if (turn.calls.empty()) return out;
  out.content = turn.content;
  for (const ToolCall& call : turn.calls)
    out.calls.push_back({call.name, dump_json(call.arguments)});
  return out;
}

size_t shown_before_calls(const CompletionRequest& request, ToolCallFormat format,
                          std::string_view text) {
  if (request.tool_choice != ToolChoice::kAuto) return 0;
  // Of others the mark is a special token, or begins as ordinary text does.
  if (format != ToolCallFormat::kHermes) return 0;
  constexpr std::string_view mark = "<tool_call>";
  if (const size_t at = text.find(mark); at != std::string_view::npos) return at;
  size_t held = std::min(mark.size() - 1, text.size());
  while (held > 0 && !text.ends_with(mark.substr(0, held))) --held;
  return text.size() - held;
}

}  // namespace temper::serve
