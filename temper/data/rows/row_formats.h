// Rows of one format as rows of another.
#pragma once

#include <string>

#include "temper/base/json.h"

namespace temper::data {

// kMessages: {"messages"}. kSharegpt: {"conversations", "system"}. kAlpaca: {"instruction",
// "input", "output", "system", "history"}. kPrompt: {"prompt", "completion"}, both messages, of
// which the completion is the assistant's final turns.
enum class WrittenFormat { kMessages, kSharegpt, kAlpaca, kPrompt };

// The row with its conversation in the format and its other fields behind it; a row of the format
// as it is. Rows hold "messages",
// "conversations" (ShareGPT), "instruction" (Alpaca), or "prompt" and "completion", text or
// messages: text is what the user asks and the assistant answers. Throws DataError that begins with
// `where` for other rows, and for conversations that the format cannot hold: Alpaca's are one
// system message at most, then turns of user and assistant.
Json convert_row(const Json& row, WrittenFormat format, const std::string& where);

}  // namespace temper::data
