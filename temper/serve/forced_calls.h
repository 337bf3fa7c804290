// The tool calls that `tool_choice` requires.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "temper/grammar/tagged.h"
#include "temper/serve/request.h"
#include "temper/text/chat/tool_calls.h"

namespace temper::serve {

// The calls that the completion must consist of, of one function or of any of them, in the format
// of the model's chat template, which it was trained on.
struct ForcedCalls {
  std::vector<grammar::Tag> tags;
  std::string separator;
  bool once;  // one call is all
};
// The calls for a request whose `tool_choice` is `required` or names a function.
ForcedCalls forced_calls(const CompletionRequest& request, ToolCallFormat format);
// The grammar of these calls. May take seconds for large schemas. Throws ConfigError.
std::shared_ptr<const grammar::Spec> spec_of(const ForcedCalls& calls);

// Text that such calls begin with and that cannot be sampled, as it is a special token: it is
// appended to the prompt. Empty: none.
const char* forced_beginning(const CompletionRequest& request, ToolCallFormat format);

}  // namespace temper::serve
