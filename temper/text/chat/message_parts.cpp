#include "temper/text/chat/message_parts.h"

#include <nlohmann/json.hpp>

namespace temper {

std::optional<std::string> text_of_parts(const Json& parts) {
  std::string text;
  for (const Json& part : parts) {
    const bool is_text = part.is_object() && part.value("type", Json()) == "text" &&
                         part.contains("text") && part["text"].is_string();
    if (!is_text) return {};
    text += part["text"].get_ref<const std::string&>();
  }
  return text;
}

void join_unread_parts(Json& messages, const ChatTemplate* chat, const Json& tools) {
  if (!messages.is_array()) return;
  for (Json& message : messages) {
    if (!message.is_object() || !message.contains("content") || !message["content"].is_array())
      continue;
    const Json role = message.value("role", Json());
    if (chat && role.is_string() && chat->reads_parts(role.get<std::string>(), tools)) continue;
    if (auto text = text_of_parts(message["content"])) message["content"] = std::move(*text);
  }
}

}  // namespace temper
