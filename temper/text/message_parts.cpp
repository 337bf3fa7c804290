#include "temper/text/message_parts.h"

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

}  // namespace temper
