// A message's `content` that is a list of parts: [{"type": "text", "text": ".."}, ..].
#pragma once

#include <optional>
#include <string>

#include "temper/base/json.h"
#include "temper/text/chat/chat_template.h"

namespace temper {

// The text of a message's parts together, without a separator; nullopt: a part is not text.
std::optional<std::string> text_of_parts(const Json& parts);

// Messages with parts of text get the joined text as their content where the template does not read
// parts: many templates of text models drop them, or print the list. `chat` may be null.
void join_unread_parts(Json& messages, const ChatTemplate* chat, const Json& tools);

}  // namespace temper
