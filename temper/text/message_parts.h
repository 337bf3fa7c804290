#pragma once

#include <optional>
#include <string>

#include "temper/base/json.h"

namespace temper {

// The text of a message's `content` that is a list of parts, [{"type": "text", "text": ".."}, ..]:
// the parts joined without a separator, as chat templates of text models read a plain text alone.
// The text of a message's parts together; nullopt: a part is not text.
std::optional<std::string> text_of_parts(const Json& parts);

}  // namespace temper
