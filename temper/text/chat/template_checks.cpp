#include "temper/text/chat/template_checks.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"

namespace temper {

WrittenTools written_tools(const ChatTemplate& chat, const Json& messages, const Json& tools) {
  WrittenTools written;
  const auto has_calls = [](const Json& message) {
    return message.is_object() && message.contains("tool_calls") &&
           message["tool_calls"].is_array() && !message["tool_calls"].empty();
  };
  const bool list =
      !tools.is_null() && tools != Json::array() && tools != "[]" && tools != "";  // as JSON text
  const bool calls =
      messages.is_array() && std::any_of(messages.begin(), messages.end(), has_calls);
  if (!list && !calls) return written;
  const std::string whole = chat.render(messages, tools, false);
  // What a template refuses without its tools, it would have written with them.
  const auto is_other = [&](const Json& less, const Json& fewer_tools) {
    try {
      return chat.render(less, fewer_tools, false) != whole;
    } catch (const DataError&) {
      return true;
    }
  };
  if (list) written.list = is_other(messages, Json());
  if (!calls) return written;
  Json without = messages;
  for (Json& message : without)
    if (message.is_object()) message.erase("tool_calls");
  written.calls = is_other(without, tools);
  return written;
}

void check_roles(const ChatTemplate& chat, const Json& messages, const Json& tools) {
  constexpr const char* kMark = "temper7c1f0a";
  for (size_t i = 0; messages.is_array() && i < messages.size(); ++i) {
    if (!messages[i].is_object() || !messages[i].contains("role")) continue;
    const Json& role = messages[i]["role"];
    if (role == "system" || role == "user" || role == "assistant" || role == "tool") continue;
    Json marked = messages;
    marked[i]["content"] = kMark;
    bool written = true;
    try {
      written = chat.render(marked, tools, false).find(kMark) != std::string::npos;
    } catch (const DataError&) {
      // The template does not pass over the message.
    }
    check<DataError>(written, "messages: message ", i + 1, " has the role ", dump_json(role),
                     ", which this chat template leaves out; expected system, user, assistant or "
                     "tool");
  }
}

}  // namespace temper
