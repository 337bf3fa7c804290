#include "temper/text/chat/chat_template.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/text/chat/image_parts.h"
#include "temper/text/chat/template_defaults.h"
#include "temper/text/tokenizer/special_tokens.h"

namespace temper {
namespace {
namespace fs = std::filesystem;

constexpr size_t kMaxTemplateBytes = size_t{16} << 20;
constexpr const char *kFile = "chat_template.jinja", *kFolder = "additional_chat_templates";

struct Source {
  std::string text;
  std::string where;  // file, or file and key
};
using Sources = std::map<std::string, Source, std::less<>>;  // by the template's name

Sources sources_in_files(const std::string& model_dir) {
  Sources sources;
  const auto add = [&](const std::string& name, const fs::path& path) {
    sources[name] = {read_file(path.string(), kMaxTemplateBytes), path.string()};
  };
  const fs::path single = fs::path(model_dir) / kFile;
  if (is_model_file(single)) add("default", single);
  const fs::path named = fs::path(model_dir) / kFolder;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(named, ignored)) {
    const fs::path& path = entry.path();
    if (path.extension() == ".jinja" && is_model_file(path)) add(path.stem().string(), path);
  }
  return sources;
}

Sources sources_in_config(const std::string& model_dir, const char* file) {
  const Json config = read_model_file(model_dir, file);
  Sources sources;
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return sources;
  const std::string where = (fs::path(model_dir) / file).string() + ": chat_template";
  if (found->is_string()) {
    sources["default"] = {found->get<std::string>(), where};
    return sources;
  }
  check<DataError>(found->is_array(), where, ": expected a text or a list of {name, template}");
  for (const Json& item : *found) {
    const bool ok = item.is_object() && item.contains("name") && item["name"].is_string() &&
                    item.contains("template") && item["template"].is_string();
    check<DataError>(ok, where, ": expected {\"name\": text, \"template\": text}, got ",
                     dump_json(item).substr(0, 80));
    const auto name = item["name"].get<std::string>();
    sources[name] = {item["template"].get<std::string>(), where + "[" + name + "]"};
  }
  return sources;
}

Sources find_sources(const std::string& model_dir) {
  Sources sources = sources_in_files(model_dir);
  if (sources.empty()) sources = sources_in_config(model_dir, "tokenizer_config.json");
  // Directories of models that see images may have it here alone.
  const char* const processor = "chat_template.json";
  if (sources.empty()) {
    sources = sources_in_config(model_dir, processor);
  }
  return sources;
}

// An adapter's own templates; none where they are those of its base, as they were copied.
Sources own_sources(const std::string& model_dir, const std::string& adapter) {
  Sources own = adapter.empty() ? Sources() : find_sources(adapter);
  const auto same = [](const auto& a, const auto& b) {
    return a.first == b.first && a.second.text == b.second.text;
  };
  const Sources base = own.empty() ? Sources() : find_sources(model_dir);
  if (std::equal(own.begin(), own.end(), base.begin(), base.end(), same)) return {};
  return own;
}

// Names from a config are untrusted.
bool is_file_name(const std::string& name) {
  return !name.empty() && name.size() <= 100 && name[0] != '.' &&
         name.find_first_of(std::string_view("/\0", 2)) == std::string::npos;
}

// Files come before what a config says, so all of the templates are written as files.
void write_sources(const Sources& sources, const std::string& directory) {
  const fs::path single = fs::path(directory) / kFile, folder = fs::path(directory) / kFolder;
  std::error_code ignored;
  fs::remove_all(folder, ignored);
  if (!sources.contains("default")) fs::remove(single, ignored);
  for (const auto& [name, source] : sources) {
    if (name == "default") {
      write_file_atomic(single.string(), source.text);
    } else if (is_file_name(name)) {
      fs::create_directories(folder);
      write_file_atomic((folder / (name + ".jinja")).string(), source.text);
    }
  }
}

// Reasoning goes by several names; templates read it as reasoning_content, some as thinking.
void spread_reasoning(Json& message) {
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    if (!message.contains(name)) continue;
    const Json reasoning = message[name];
    if (!message.contains("thinking")) {
      Json with_thinking = {{"thinking", reasoning}};
      with_thinking.update(message);
      message = std::move(with_thinking);
    }
    message["reasoning_content"] = reasoning;
    return;
  }
}

// Messages as transformers passes them on.
Json prepared(const Json& messages) {
  check<DataError>(messages.is_array(), "messages: expected a list of {role, content}");
  Json out = Json::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    const Json& message = messages[i];
    const bool has_role =
        message.is_object() && message.contains("role") && message["role"].is_string();
    check<DataError>(has_role, "messages: message ", i + 1,
                     " is not an object with a `role`; expected {role, content}");
    Json copy = Json::object();
    for (const auto& [name, value] : message.items()) {
      if (!value.is_null()) copy[name] = value;
    }
    spread_reasoning(copy);
    out.push_back(std::move(copy));
  }
  return out;
}

constexpr const char *kFirstPart = "temper5d0e1", *kSecondPart = "temper5d0e2";

Json two_parts() {
  return Json::array(
      {{{"type", "text"}, {"text", kFirstPart}}, {{"type", "text"}, {"text", kSecondPart}}});
}

// A conversation in which a message of the role has this content; empty for a role that templates
// do not know.
Json conversation_with(const Json& content, const std::string& role) {
  const Json asked = {{"role", "user"}, {"content", "?"}};
  Json message = {{"role", role}, {"content", content}};
  if (role == "user") return Json::array({message});
  if (role == "assistant") return Json::array({asked, message});
  if (role == "system" || role == "developer") return Json::array({message, asked});
  if (role != "tool") return Json::array();
  const char* const id = "temper5d0";  // nine characters, as Mistral's templates want
  message["tool_call_id"] = id;
  message["name"] = "f";
  const Json call = {{"type", "function"},
                     {"id", id},
                     {"function", {{"name", "f"}, {"arguments", Json::object()}}}};
  return Json::array(
      {asked, {{"role", "assistant"}, {"content", ""}, {"tool_calls", {call}}}, message});
}

// Both parts in their order, and between them nothing of the list's own text.
bool writes_both_parts(const std::string& text) {
  const size_t first = text.find(kFirstPart), second = text.find(kSecondPart);
  if (first == text.npos || second == text.npos || second < first) return false;
  return std::string_view(text).substr(first, second - first).find("type") ==
         std::string_view::npos;
}
}  // namespace

struct ChatTemplate::Impl {
  std::optional<jinja::JinjaTemplate> plain, with_tools;
  Sources sources;
  bool is_own = false;  // the sources are not what the model directory has
  Json variables;
  std::string where;  // the directory or name, for errors
  jinja::RenderOptions options;
  // By role, and whether there are tools: writes().
  mutable std::mutex reading;
  mutable std::map<std::pair<std::string, bool>, bool> parts, texts;

  const jinja::JinjaTemplate& choose(const Json& tools) const {
    if (!tools.is_null() && with_tools) return *with_tools;
    check<DataError>(plain.has_value(), where,
                     ": has several chat templates and none of them is called \"default\"; name "
                     "one so");
    return *plain;
  }
};

const std::string& ChatTemplate::source(const Json& tools) const {
  static const std::string none;
  const bool with_tools = impl_->with_tools && !tool_list(tools).is_null();
  const auto found = impl_->sources.find(with_tools ? "tool_use" : "default");
  return found == impl_->sources.end() ? none : found->second.text;
}

std::shared_ptr<ChatTemplate::Impl> ChatTemplate::make(std::string where,
                                                       const jinja::RenderOptions& options) {
  auto impl = std::make_shared<Impl>();
  impl->where = std::move(where);
  impl->options = options;
  return impl;
}

ChatTemplate::ChatTemplate(std::shared_ptr<const Impl> impl)
    : impl_(std::move(impl)), now_(impl_->options.clock()) {}

bool ChatTemplate::writes_date() const {
  return std::any_of(impl_->sources.begin(), impl_->sources.end(), [](const auto& source) {
    return source.second.text.find("strftime_now") != std::string::npos;
  });
}

bool ChatTemplate::exists(const std::string& model_dir) { return !find_sources(model_dir).empty(); }

bool ChatTemplate::has_own(const std::string& model_dir, const std::string& adapter) {
  return !own_sources(model_dir, adapter).empty();
}

void ChatTemplate::copy_own(const std::string& model_dir, const std::string& adapter,
                            const std::string& to) {
  if (const Sources own = own_sources(model_dir, adapter); !own.empty()) write_sources(own, to);
}

void ChatTemplate::save(const std::string& directory) const {
  if (impl_->is_own) write_sources(impl_->sources, directory);
}

std::shared_ptr<const ChatTemplate> ChatTemplate::find(const std::string& model_dir,
                                                       const ChatOptions& options) {
  const bool found =
      !options.file.empty() || exists(model_dir) || has_own(model_dir, options.adapter);
  return found ? std::make_shared<const ChatTemplate>(load(model_dir, options)) : nullptr;
}

ChatTemplate ChatTemplate::load(const std::string& model_dir) {
  return load(model_dir, ChatOptions());
}

ChatTemplate ChatTemplate::load(const std::string& model_dir, const ChatOptions& options) {
  auto impl = make(model_dir, options.render);
  Sources& sources = impl->sources;
  if (!options.file.empty())
    sources["default"] = {read_file(options.file, kMaxTemplateBytes), options.file};
  else
    sources = own_sources(model_dir, options.adapter);
  impl->is_own = !sources.empty();
  if (sources.empty()) sources = find_sources(model_dir);
  check<DataError>(!sources.empty(), model_dir,
                   ": has no chat template, which messages need; put one there as "
                   "chat_template.jinja (that of the model's instruction-tuned sibling, say), "
                   "name one with data.chat_template, or give rows of text or token ids");
  impl->variables = special_tokens(model_dir);
  if (!options.variables.empty()) {
    const Json variables =
        parse_json(options.variables, "data.template_variables", BigIntegers::kKept);
    check<DataError>(variables.is_object(),
                     "data.template_variables: expected names with values, as in "
                     "{enable_thinking: false}");
    // As a part of the text, which save() writes: what was trained is what will be rendered.
    Json given = impl->variables;
    given["documents"] = nullptr;
    for (auto& [name, source] : sources)
      source.text = with_default_variables(source.text, variables, given);
    impl->is_own = impl->is_own || !variables.empty();
  }
  const auto take = [&](std::string_view name, std::optional<jinja::JinjaTemplate>& into) {
    const auto found = sources.find(name);
    if (found == sources.end()) return;
    into = jinja::JinjaTemplate::parse(found->second.text, found->second.where);
  };
  take("default", impl->plain);
  take("tool_use", impl->with_tools);
  return ChatTemplate(std::move(impl));
}

ChatTemplate ChatTemplate::parse(std::string source, std::string name, const Json& variables,
                                 const jinja::RenderOptions& options) {
  auto impl = make(name, options);
  impl->sources["default"] = {source, name};
  impl->plain = jinja::JinjaTemplate::parse(std::move(source), std::move(name));
  impl->variables = variables;
  return ChatTemplate(std::move(impl));
}

// `tools` as a list, or null.
Json ChatTemplate::tool_list(const Json& tools) {
  if (!tools.is_string()) return tools;
  const auto& text = tools.get_ref<const std::string&>();
  return text.empty() ? Json() : parse_json(text, "tools", BigIntegers::kKept);
}

bool ChatTemplate::reads_parts(const std::string& role, const Json& tools) const {
  return writes(Content::kParts, role, tools.is_string() ? tools != "" : !tools.is_null());
}

bool ChatTemplate::writes(Content content, const std::string& role, bool with_tools) const {
  const bool parts = content == Content::kParts;
  const Json messages = conversation_with(parts ? two_parts() : Json(kFirstPart), role);
  if (messages.empty()) return !parts;
  const std::lock_guard lock(impl_->reading);
  const auto [found, fresh] =
      (parts ? impl_->parts : impl_->texts).try_emplace({role, with_tools}, !parts);
  if (!fresh) return found->second;
  const Json tool = {{"type", "function"},
                     {"function",
                      {{"name", "f"},
                       {"description", ""},
                       {"parameters", {{"type", "object"}, {"properties", Json::object()}}}}}};
  try {
    const std::string text = write(messages, with_tools ? Json::array({tool}) : Json(), false).text;
    found->second = parts ? writes_both_parts(text) : text.find(kFirstPart) != text.npos;
  } catch (const DataError&) {
    // It refuses lists, or such a conversation.
  }
  return found->second;
}

bool ChatTemplate::has_generation(const Json& tools) const {
  return impl_->choose(tool_list(tools)).has_generation();
}

std::string ChatTemplate::render(const Json& messages, const Json& tools,
                                 bool add_generation_prompt) const {
  check<DataError>(!messages.is_array() || !messages.empty(),
                   "messages: empty; a conversation has at least one message");
  return render_with_spans(messages, tools, add_generation_prompt).text;
}

Json ChatTemplate::with_read_contents(Json messages, bool with_tools) const {
  for (Json& message : messages) {
    const auto content = message.find("content");
    if (content == message.end() || !(content->is_string() || content->is_array())) continue;
    const std::string role = message["role"].get<std::string>();
    if (content->is_array()) {
      *content = image_content(*content, writes(Content::kParts, role, with_tools));
    } else if (!writes(Content::kText, role, with_tools) &&
               writes(Content::kParts, role, with_tools)) {
      *content = Json::array({{{"type", "text"}, {"text", *content}}});
    }
  }
  return messages;
}

jinja::Rendered ChatTemplate::render_with_spans(const Json& messages, const Json& tools,
                                                bool add_generation_prompt) const {
  const Json list = tool_list(tools);
  check<DataError>(list.is_null() || list.is_array(),
                   "tools: expected a list of JSON schemas, or its JSON text");
  for (size_t i = 0; i < list.size(); ++i) {
    check<DataError>(list[i].is_object(), "tools: tool ", i + 1, " is not a JSON schema object");
  }
  jinja::Rendered rendered =
      write(with_read_contents(prepared(messages), !list.is_null()), list, add_generation_prompt);
  expand_images(placed_images(messages), rendered);
  return rendered;
}

jinja::Rendered ChatTemplate::write(const Json& messages, const Json& tools,
                                    bool add_generation_prompt) const {
  Json context = impl_->variables;
  context["messages"] = messages;
  context["tools"] = tools;
  if (!context.contains("documents")) context["documents"] = nullptr;
  context["add_generation_prompt"] = add_generation_prompt;
  jinja::RenderOptions options = impl_->options;
  options.clock = [now = now_] { return now; };
  return impl_->choose(tools).render_with_spans(context, options);
}

}  // namespace temper
