// Any bytes as a turn that a model said: its tool calls are read in every format without an error,
// and its reasoning is the same whether it comes at once or byte by byte.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "temper/base/json.h"
#include "temper/serve/reasoning.h"
#include "temper/text/chat/tool_calls.h"
#include "temper/text/unicode.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace temper;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const ToolCallFormat format : {ToolCallFormat::kHermes, ToolCallFormat::kLlama,
                                      ToolCallFormat::kGemma, ToolCallFormat::kMistral}) {
    const SpokenTurn turn = parse_tool_calls(format, text);
    // What is no UTF-8 may be replaced by longer text.
    if (valid_utf8_prefix(text) == text.size() && turn.content.size() > text.size()) std::abort();
    for (const ToolCall& call : turn.calls)
      if (call.name.empty() || !call.arguments.is_object()) std::abort();
  }
  const serve::ReasoningMarks marks = serve::reasoning_marks("<think> </think>");
  for (const bool within : {false, true}) {
    serve::ReasoningSplitter at_once(marks, within), by_byte(marks, within);
    const auto whole = at_once.next(text, true);
    std::string reasoning, answer;
    for (size_t i = 0; i <= text.size(); ++i) {
      const auto part = by_byte.next(text.substr(i, 1), i == text.size());
      reasoning += part.reasoning;
      answer += part.answer;
    }
    if (reasoning != whole.reasoning || answer != whole.answer) std::abort();
  }
  return 0;
}
