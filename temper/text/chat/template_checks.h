// What a chat template leaves out of a conversation, found by rendering it with and without.
#pragma once

#include "temper/base/json.h"
#include "temper/text/chat/chat_template.h"

namespace temper {

// Whether the template writes what a conversation has of tools, by rendering it without them:
// `tools` where there are any, and the calls (`tool_calls`) of its messages. Throws DataError where
// it cannot render the conversation.
struct WrittenTools {
  bool list = true, calls = true;
};
WrittenTools written_tools(const ChatTemplate& chat, const Json& messages, const Json& tools);

// Throws DataError for a message whose role is not system, user, assistant or tool and which the
// template leaves out: many templates pass over a role that they do not know, without a word.
void check_roles(const ChatTemplate& chat, const Json& messages, const Json& tools);

}  // namespace temper
