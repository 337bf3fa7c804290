// What `tool_choice` makes a completion be.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "temper/grammar/tagged.h"
#include "temper/serve/request.h"
#include "temper/text/tool_calls.h"

namespace temper::serve {

// The calls that the completion has to be, written as the model's chat template writes them, so
// that the model says what it was trained to say: of one function, or of any of them.
struct ForcedCalls {
  std::vector<grammar::Tag> tags;
  std::string separator;
  bool once;  // one call is all
};
// Of a request whose `tool_choice` does not leave it to the model.
ForcedCalls forced_calls(const CompletionRequest& request, ToolCallFormat format);
// Takes a while for large schemas. Throws ConfigError.
std::shared_ptr<const grammar::Spec> spec_of(const ForcedCalls& calls);

// The text that stands before such calls and cannot be sampled, as it is a special token: it ends
// the prompt.
const char* forced_beginning(const CompletionRequest& request, ToolCallFormat format);

}  // namespace temper::serve
