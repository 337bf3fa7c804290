// The chat template of a model directory, rendered as transformers'
// apply_chat_template(tokenize=False) renders it.
#pragma once

#include <ctime>
#include <memory>
#include <string>

#include "temper/base/json.h"
#include "temper/text/jinja/template.h"

namespace temper {

struct ChatOptions {
  std::string file;       // a template to take instead of the directory's; empty: none
  std::string variables;  // a JSON object given to every render, as {"enable_thinking": false}
  std::string adapter;    // directory of an adapter, whose own templates come before the model's
  jinja::RenderOptions render;
};

class ChatTemplate {
 public:
  // True when load() would find a template: in `chat_template.jinja`,
  // `additional_chat_templates/*.jinja`, or as `chat_template` (one text, or a list of {name,
  // template}) in `tokenizer_config.json` or `chat_template.json`. The first of these wins.
  static bool exists(const std::string& model_dir);

  // True when an adapter's directory has templates, found in the same way, that are not those of
  // the model directory: they are a part of the adapter, which was trained with them.
  static bool has_own(const std::string& model_dir, const std::string& adapter);

  // Writes an adapter's own templates into the directory of the model that it is merged into, as
  // save() does; nothing where it has none. They are not parsed. Throws RunError.
  static void copy_own(const std::string& model_dir, const std::string& adapter,
                       const std::string& to);

  // Reads the templates named "default" and "tool_use" and the special tokens that they see as
  // variables: bos_token, eos_token, and every other `*_token` of tokenizer_config.json. Throws
  // DataError, also when there is no template. Templates that write the date (strftime_now) get the
  // time of this call, by the options' clock, in every render, so that the rows of one run agree.
  static ChatTemplate load(const std::string& model_dir);
  static ChatTemplate load(const std::string& model_dir, const ChatOptions& options);
  // The same, or null where there is no template.
  static std::shared_ptr<const ChatTemplate> find(const std::string& model_dir,
                                                  const ChatOptions& options = {});

  // writes_date(): whether a template uses strftime_now; date(): the time that it then writes.
  bool writes_date() const;
  const std::tm& date() const { return now_; }
  // The same template with the date of this call.
  ChatTemplate at_now() const { return ChatTemplate(impl_); }

  // Makes the templates those of another directory, to which the model's tokenizer files were
  // copied: chat_template.jinja and additional_chat_templates/, with the variables of ChatOptions
  // as their defaults, so that all that loads from there renders what this one renders. Writes
  // nothing where the model directory's own were loaded, without variables. Throws RunError.
  void save(const std::string& directory) const;

  // One template from its source, with `variables` (an object) given to every render; `name` stands
  // in errors. Throws DataError.
  static ChatTemplate parse(std::string source, std::string name, const Json& variables,
                            const jinja::RenderOptions& options = {});

  // `messages`: a list of objects with a `role`, not empty; null fields count as missing. `tools`:
  // null, or a list of JSON schemas, for which "tool_use" is used where there is one; the list may
  // also be its JSON text. Images (image_parts.h) stand in the text as what their placeholders
  // become. A text `content` is one part where the template writes parts but no texts (SmolVLM's).
  // Throws DataError: what the template raises carries its message.
  std::string render(const Json& messages, const Json& tools, bool add_generation_prompt) const;

  // Renders with the byte ranges that `{% generation %}` blocks wrote. Messages may be empty here,
  // as they are for what stands before the first turn.
  jinja::Rendered render_with_spans(const Json& messages, const Json& tools,
                                    bool add_generation_prompt) const;

  // Whether the template that `tools` selects writes every text of such a message of the role whose
  // `content` is a list of parts, {"type": "text", "text": ..}, rather than the list itself, some
  // of them or none. It is asked once for each role, with a conversation made up for that.
  bool reads_parts(const std::string& role, const Json& tools) const;

  // The text of the template that `tools` selects; with its variables as defaults.
  const std::string& source(const Json& tools) const;

  // Whether the template that `tools` selects marks with `{% generation %}` what is trained.
  bool has_generation(const Json& tools) const;

 private:
  struct Impl;
  static std::shared_ptr<Impl> make(std::string where, const jinja::RenderOptions& options);
  static Json tool_list(const Json& tools);
  // What a message of the role may have as its content, as a conversation made up for that shows.
  enum class Content { kParts, kText };
  bool writes(Content content, const std::string& role, bool with_tools) const;
  Json with_read_contents(Json messages, bool with_tools) const;
  jinja::Rendered write(const Json& messages, const Json& tools, bool add_generation_prompt) const;
  explicit ChatTemplate(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
  std::tm now_;
};

}  // namespace temper
