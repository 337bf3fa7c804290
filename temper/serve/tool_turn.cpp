#include "temper/serve/tool_turn.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "temper/serve/forced_calls.h"

namespace temper::serve {
SpokenCalls spoken_calls(const CompletionRequest& request, ToolCallFormat format,
                         const Tokenizer& tokenizer, std::span<const int32_t> tokens,
                         ReasoningSplitter reasoning, const std::string& answer) {
  SpokenCalls out{answer, {}};
  // Marks of calls may be special tokens; the end token is none of them.
  while (!tokens.empty() && tokenizer.is_special(tokens.back()))
    tokens = tokens.first(tokens.size() - 1);
  const std::string said = reasoning.next(tokenizer.decode(tokens), true).answer;
  const SpokenTurn turn = parse_tool_calls(format, forced_beginning(request, format) + said);
  if (turn.calls.empty()) return out;
  out.content = turn.content;
  for (const ToolCall& call : turn.calls)
    out.calls.push_back({call.name, dump_json(call.arguments)});
  return out;
}

size_t shown_before_calls(const CompletionRequest& request, ToolCallFormat format,
                          std::string_view text) {
  if (request.tool_choice != ToolChoice::kAuto) return 0;
  // In other formats the mark is a special token, or begins as ordinary text does.
  if (format != ToolCallFormat::kHermes) return 0;
  constexpr std::string_view mark = "<tool_call>";
  if (const size_t at = text.find(mark); at != std::string_view::npos) return at;
  size_t held = std::min(mark.size() - 1, text.size());
  while (held > 0 && !text.ends_with(mark.substr(0, held))) --held;
  return text.size() - held;
}

}  // namespace temper::serve
