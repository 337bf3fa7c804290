#include "temper/text/chat_template.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "temper/base/error.h"
#include "temper/base/file.h"

namespace temper {
namespace {

// The templates of a directory: source, and the name that errors give it.
struct Sources {
  std::string text, tools, where;
};

std::optional<Json> read_if_there(const std::string& path) {
  if (!std::filesystem::is_regular_file(path)) return std::nullopt;
  Json json = read_json_file(path, size_t{64} << 20);
  return json.is_object() ? std::optional(std::move(json)) : std::nullopt;
}

std::optional<Sources> from_json(const Json& json, const std::string& where) {
  const auto it = json.find("chat_template");
  if (it == json.end() || it->is_null()) return std::nullopt;
  Sources sources{"", "", where};
  if (it->is_string()) {
    sources.text = it->get<std::string>();
    return sources;
  }
  check<DataError>(it->is_array(), where, ": `chat_template` must be text or a list of {name, template}");
  for (const Json& entry : *it) {
    check<DataError>(entry.is_object() && entry.contains("name") && entry.contains("template") && entry["name"].is_string() && entry["template"].is_string(),
                     where, ": `chat_template` must be text or a list of {name, template}");
    if (entry["name"] == "default") sources.text = entry["template"].get<std::string>();
    if (entry["name"] == "tool_use") sources.tools = entry["template"].get<std::string>();
  }
  check<DataError>(!sources.text.empty(), where, ": the list of chat templates has none named `default`");
  return sources;
}

std::optional<Sources> find_sources(const std::string& dir) {
  const std::string own = dir + "/chat_template.jinja";
  if (std::filesystem::is_regular_file(own)) {
    Sources sources{read_file(own, size_t{16} << 20), "", own};
    const std::string tools = dir + "/additional_chat_templates/tool_use.jinja";
    if (std::filesystem::is_regular_file(tools)) sources.tools = read_file(tools, size_t{16} << 20);
    return sources;
  }
  for (const char* name : {"chat_template.json", "tokenizer_config.json"}) {
    const std::string path = dir + "/" + name;
    if (const auto json = read_if_there(path))
      if (auto sources = from_json(*json, path)) return sources;
  }
  return std::nullopt;
}

// Names that hold a token, as text or as {"content": text}.
Json special_tokens(const std::string& dir) {
  Json tokens = Json::object();
  for (const char* name : {"special_tokens_map.json", "tokenizer_config.json"}) {
    const auto json = read_if_there(dir + "/" + name);
    if (!json) continue;
    for (const auto& [key, value] : json->items()) {
      if (!key.ends_with("_token")) continue;
      if (value.is_string()) tokens[key] = value;
      else if (value.is_object() && value.contains("content") && value["content"].is_string()) tokens[key] = value["content"];
    }
  }
  return tokens;
}

}  // namespace

bool ChatTemplate::exists(const std::string& model_dir) { return find_sources(model_dir).has_value(); }

ChatTemplate ChatTemplate::load(const std::string& model_dir) {
  const auto sources = find_sources(model_dir);
  check<DataError>(sources.has_value(), model_dir, ": no chat template: neither chat_template.jinja nor `chat_template` in tokenizer_config.json is "
                   "there; messages need one");
  ChatTemplate chat;
  chat.default_ = std::make_shared<jinja::JinjaTemplate>(jinja::JinjaTemplate::parse(sources->text, sources->where));
  if (!sources->tools.empty()) chat.tools_ = std::make_shared<jinja::JinjaTemplate>(jinja::JinjaTemplate::parse(sources->tools, sources->where + " (tool_use)"));
  chat.special_tokens_ = std::make_shared<Json>(special_tokens(model_dir));
  return chat;
}

const jinja::JinjaTemplate& ChatTemplate::choose(const Json& tools) const { return tools_ && !tools.is_null() ? *tools_ : *default_; }
bool ChatTemplate::has_generation(const Json& tools) const { return choose(tools).has_generation(); }

Json ChatTemplate::context(const Json& messages, const Json& tools, bool add_generation_prompt) const {
  check<DataError>(messages.is_array(), "`messages` must be a list");
  for (const Json& message : messages)
    check<DataError>(message.is_object() && message.contains("role") && message["role"].is_string(), "`messages` must hold objects with a `role`");
  check<DataError>(tools.is_null() || tools.is_array(), "`tools` must be a list");
  Json context = *special_tokens_;
  context["messages"] = messages;
  context["tools"] = tools;
  context["documents"] = nullptr;
  context["add_generation_prompt"] = add_generation_prompt;
  return context;
}

std::string ChatTemplate::render(const Json& messages, const Json& tools, bool add_generation_prompt) const {
  return choose(tools).render(context(messages, tools, add_generation_prompt));
}
jinja::Rendered ChatTemplate::render_with_spans(const Json& messages, const Json& tools, bool add_generation_prompt) const {
  return choose(tools).render_with_spans(context(messages, tools, add_generation_prompt));
}

}  // namespace temper
