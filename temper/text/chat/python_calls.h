// Calls in Python's notation, with literals as arguments: f(x=1, y=["a", None]).
#pragma once

#include <string_view>
#include <vector>

#include "temper/text/chat/tool_calls.h"

namespace temper {

// Why a text is no such calls. Stays within temper/text.
struct NotPython {
  std::string why;
};

// Whether the text begins as a call does: a name, dots among its letters, and a parenthesis.
bool begins_python_call(std::string_view text);

// [f(..), g(..)], or calls one after the other, with space, commas or semicolons between them;
// print(f(..)) is f(..), and f.call(..) is f(..). Throws NotPython.
std::vector<ToolCall> parse_python_calls(std::string_view text);

}  // namespace temper
