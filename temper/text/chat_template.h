// The chat template of a model directory.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "temper/base/json.h"

namespace temper {

class ChatTemplate {
 public:
  static bool exists(const std::string& model_dir);
  static ChatTemplate load(const std::string& model_dir);
  std::string render(const Json& messages, const Json& tools, bool add_generation_prompt) const;
};

}  // namespace temper
