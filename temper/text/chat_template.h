// The chat template of a model directory: chat_template.jinja, or the template inside tokenizer_config.json (alone, or in
// a named list) or chat_template.json, rendered as transformers' apply_chat_template does.
#pragma once

#include <memory>
#include <string>

#include "temper/base/json.h"
#include "temper/text/jinja/template.h"

namespace temper {

class ChatTemplate {
 public:
  static bool exists(const std::string& model_dir);
  // Throws DataError where there is none, saying where it was looked for.
  static ChatTemplate load(const std::string& model_dir);

  // `tools` is a list or null. Throws DataError, also for what the template raises by itself.
  std::string render(const Json& messages, const Json& tools, bool add_generation_prompt) const;
  // With the byte ranges that {% generation %} blocks wrote.
  jinja::Rendered render_with_spans(const Json& messages, const Json& tools, bool add_generation_prompt) const;
  bool has_generation(const Json& tools) const;

 private:
  ChatTemplate() = default;
  const jinja::JinjaTemplate& choose(const Json& tools) const;
  Json context(const Json& messages, const Json& tools, bool add_generation_prompt) const;

  std::shared_ptr<const jinja::JinjaTemplate> default_, tools_;  // tools_: a list's "tool_use", where there is one
  std::shared_ptr<const Json> special_tokens_;                   // bos_token, eos_token, ...: variables of the template
};

}  // namespace temper
