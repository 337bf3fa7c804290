// Conversations in the formats of other programs, as {"messages": [{role, content}]}.
#pragma once

#include <string>

#include "temper/base/json.h"

namespace temper::data {

// ShareGPT: {"conversations": [{"from": "human" | "gpt" | ..., "value": text}], "system": text}.
// Messages that are {role, content} already stay as they are, and so do a message's other fields
// (`weight`, say). Throws DataError naming a speaker that is not known.
Json from_sharegpt(Json row, const std::string& where);

// Alpaca: {"instruction", "input", "output", "system", "history": [[question, answer], ..]}, all
// text, of which only the instruction must be there; without an output the row is a prompt. With
// `as_messages` a conversation, whose question is the instruction and below it the input; else
// {"prompt", "completion"} in the words that Alpaca was trained with. Throws DataError.
Json from_alpaca(Json row, bool as_messages, const std::string& where);

}  // namespace temper::data
