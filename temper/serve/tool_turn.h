// Calls of tools in what a model says to a client.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "temper/serve/reasoning.h"
#include "temper/serve/request.h"
#include "temper/text/chat/tool_calls.h"
#include "temper/text/tokenizer/tokenizer.h"

namespace temper::serve {

// What a turn is to the client: its text, and the calls with their arguments as JSON text.
struct SpokenCalls {
  struct Call {
    std::string name, arguments;
  };
  std::string content;
  std::vector<Call> calls;  // empty: the content is the whole turn
};

// tokens: of the whole turn; answer: their text without special tokens and reasoning. What begins
// like a call and is none stays in the content.
SpokenCalls spoken_calls(const CompletionRequest& request, ToolCallFormat format,
                         const Tokenizer& tokenizer, std::span<const int32_t> tokens,
                         ReasoningSplitter reasoning, const std::string& answer);

// How much of the beginning of a turn's text is not part of a call, whatever follows.
size_t shown_before_calls(const CompletionRequest& request, ToolCallFormat format,
                          std::string_view text);

}  // namespace temper::serve
