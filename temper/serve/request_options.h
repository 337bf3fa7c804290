// The parts of a request that say how it is sampled and what the completion has to be.
#pragma once

#include "temper/generate/sampling/option_table.h"
#include "temper/serve/body.h"
#include "temper/serve/request.h"

namespace temper::serve {

// The parameters of sampling that the API has, but the number of tokens and what the completion has
// to be. Throws DataError.
void read_sampling(Members& members, generate::Api api, generate::GenerationOptions& options);
// `tools` and `tool_choice` of a chat.
void read_tools(Members& members, CompletionRequest& out);
// `response_format`; vLLM's `structured_outputs` and guided_json, guided_regex, guided_choice,
// guided_grammar.
void read_structure(Members& members, CompletionRequest& out);

}  // namespace temper::serve
