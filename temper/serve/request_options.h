// The parts of a request that say how it is sampled and what the completion has to be.
#pragma once

#include "temper/serve/body.h"
#include "temper/serve/request.h"

namespace temper::serve {

// OpenAI's and vLLM's parameters of sampling. Throws DataError.
void read_sampling(Members& members, generate::GenerationOptions& options);
// `tools` and `tool_choice` of a chat.
void read_tools(Members& members, CompletionRequest& out);
// `response_format`; vLLM's `structured_outputs` and guided_json, guided_regex, guided_choice,
// guided_grammar.
void read_structure(Members& members, CompletionRequest& out);

}  // namespace temper::serve
