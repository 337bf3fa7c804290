// Template variables as defaults in a template's head, and templates that a trained model or an
// adapter carries.
#include "temper/text/chat/template_defaults.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/text/chat/chat_template.h"
#include "tests/text/templates.h"

using namespace temper;
namespace fs = std::filesystem;

namespace {

const char* const kQwen3 =
    "{% for m in messages %}{{ m.content }}{% endfor %}"
    "{%- if enable_thinking is defined and enable_thinking is false %}NOTHINK{% endif %}";

jinja::RenderOptions fixed_date() {
  jinja::RenderOptions options;
  options.clock = [] { return std::tm{}; };
  return options;
}

// The text and what is trained of it, or null when the template raises.
Json rendered(const std::string& source, const Json& variables, const Json& conversation,
              bool prompt) {
  try {
    const jinja::Rendered out =
        ChatTemplate::parse(source, "t", variables, fixed_date())
            .render_with_spans(conversation.at("messages"), conversation.at("tools"), prompt);
    return {out.text, out.generations};
  } catch (const DataError&) {
    return nullptr;
  }
}

std::string text(const std::string& directory, const Json& tools = nullptr,
                 const ChatOptions& options = {}) {
  return ChatTemplate::load(directory, options).render(kMessages, tools, true);
}

ChatOptions with_variables(const std::string& variables) {
  ChatOptions options;
  options.variables = variables;
  return options;
}

ChatOptions with_adapter(const std::string& directory) {
  ChatOptions options;
  options.adapter = directory;
  return options;
}

}  // namespace

TEST_CASE("a template with its variables in its head renders what it renders with them") {
  const Json file = read_json_file(golden_path("templates/chats.json"));
  std::map<std::string, std::string> sources{
      {"space", " {% if true %}x{% endif %}\n"},
      {"lines", "\n\n  {% if enable_thinking %}a{% endif %} b"},
      {"returns", "\r\n {% if true %}x{% endif %}"},
      {"empty", ""},
      {"line", "\n"},
      {"values", "{{ documents }}{{ enable_thinking is false }}{{ n + 1 }}{{ none_ is none }}"},
      {"macro",
       "{% macro m() %}[{{ enable_thinking }}]{% endmacro %}{% for i in [1, 2] %}{{ m() }}"
       "{{ enable_thinking }}{% endfor %}"}};
  for (const auto& [name, results] : file.at("results").items()) {
    std::string path = golden_path("templates/" + name + ".jinja");
    if (name == "qwen2") path = source_path("../shared/data/tokenizers/qwen2/chat_template.jinja");
    if (fs::exists(path)) sources[name] = read_file(path);
  }
  CHECK(sources.size() > 15);
  Json variables = file.at("variables");
  variables.update(parse_json(R"({"enable_thinking": false, "n": -3, "none_": null,
      "documents": [{"title": "é\"'\\\n%}{{ \u0001", "text": [1, -2.5e-7, 18446744073709551615,
      null, true, {}]}], "date_string": "26 Jul"})",
                              "variables"));
  const Json given = {{"documents", nullptr}};
  const Json thinks = {{"documents", nullptr}, {"enable_thinking", true}};
  for (const auto& [name, source] : sources) {
    CAPTURE(name);
    const std::string with_head = with_default_variables(source, variables, given);
    Json others = variables;
    others["enable_thinking"] = true;
    for (const auto& [conversation, input] : file.at("conversations").items()) {
      CAPTURE(conversation);
      for (const bool prompt : {false, true}) {
        CHECK(rendered(with_head, given, input, prompt) ==
              rendered(source, variables, input, prompt));
        CHECK(rendered(with_head, thinks, input, prompt) ==
              rendered(source, others, input, prompt));
      }
    }
  }
}

TEST_CASE("the head is what other tools read") {
  const auto head = [](const Json& variables, const Json& given = Json::object()) {
    return with_default_variables("x", variables, given);
  };
  CHECK(head({{"enable_thinking", false}}) ==
        "{%- if enable_thinking is not defined %}{%- set enable_thinking = false %}{%- endif %}x");
  CHECK(head({{"a", "q\"\\\n"}}) ==
        R"({%- if a is not defined %}{%- set a = "q\"\\\x0a" %}{%- endif %}x)");
  CHECK(head({{"a", {{"b", {1, nullptr, 0.5}}}}}) ==
        R"({%- if a is not defined %}{%- set a = {"b": [1, none, 0.5]} %}{%- endif %}x)");
  // What a renderer gives by itself is replaced.
  CHECK(
      head({{"bos_token", ""}}, {{"bos_token", "<s>"}}) ==
      R"({%- if bos_token is not defined or bos_token == "<s>" %}{%- set bos_token = "" %}{%- endif %}x)");
  // Names that no template reads, and those of the call.
  for (const char* name :
       {"", "a b", "a-b", "1a", "a.b", "not", "true", "None", "messages", "tools"})
    CHECK(head({{name, 1}}) == "x");
  CHECK(head(Json::object()) == "x");
}

TEST_CASE("a template is saved with its variables, in whatever form the directory has it") {
  const std::string in_config = Json{{"chat_template", kQwen3}, {"bos_token", "<s>"}}.dump();
  ModelDir base("base"), saved("saved");
  base.with("tokenizer_config.json", in_config);
  saved.with("tokenizer_config.json", in_config);  // as it is copied
  const auto save = [&](const ChatOptions& options) {
    ChatTemplate::load(base.path, options).save(saved.path);
  };
  save({});
  CHECK_FALSE(saved.has("chat_template.jinja"));
  CHECK(text(saved.path) == "hi");

  const ChatOptions options = with_variables(R"({"enable_thinking": false, "n": 1})");
  CHECK(text(base.path, nullptr, options) == "hiNOTHINK");
  save(options);
  CHECK(text(saved.path) == "hiNOTHINK");
  CHECK(text(saved.path, nullptr, with_variables(R"({"enable_thinking": true})")) == "hi");
  CHECK(saved.read("chat_template.jinja").ends_with(kQwen3));

  // A template of its own for tools, named in a file or a config.
  const Json named = {{{"name", "default"}, {"template", kQwen3}},
                      {{"name", "tool_use"}, {"template", "tools {{ n }}"}},
                      {{"name", "../rag"}, {"template", "x"}}};
  base.with("tokenizer_config.json", Json{{"chat_template", named}}.dump());
  save(options);
  CHECK(text(saved.path) == "hiNOTHINK");
  CHECK(text(saved.path, kTools) == "tools 1");
  CHECK_FALSE(saved.has("rag.jinja"));

  // Another template stands for all of them.
  ModelDir other("other");
  other.with("t.jinja", "other");
  ChatOptions file;
  file.file = other.path + "/t.jinja";
  save(file);
  CHECK(saved.read("chat_template.jinja") == "other");
  CHECK(text(saved.path, kTools) == "other");
}

TEST_CASE("an adapter's own template comes before that of its base") {
  ModelDir base("model"), adapter("adapter"), merged("merged");
  CHECK(ChatTemplate::find(base.path) == nullptr);
  base.with("tokenizer_config.json", R"({"chat_template": "base {{ bos_token }}",
      "bos_token": "<s>"})");
  merged.with("tokenizer_config.json", base.read("tokenizer_config.json"));
  CHECK_FALSE(ChatTemplate::has_own(base.path, ""));
  CHECK_FALSE(ChatTemplate::has_own(base.path, adapter.path));
  CHECK(text(base.path, nullptr, with_adapter(adapter.path)) == "base <s>");

  // A copy of the base's is none.
  adapter.with("tokenizer_config.json", base.read("tokenizer_config.json"));
  CHECK_FALSE(ChatTemplate::has_own(base.path, adapter.path));
  ChatTemplate::copy_own(base.path, adapter.path, merged.path);
  CHECK_FALSE(merged.has("chat_template.jinja"));

  adapter.with("chat_template.jinja", "adapter {{ bos_token }}");
  CHECK(ChatTemplate::has_own(base.path, adapter.path));
  CHECK(text(base.path, nullptr, with_adapter(adapter.path)) == "adapter <s>");
  CHECK(text(base.path) == "base <s>");
  ChatTemplate::copy_own(base.path, adapter.path, merged.path);
  CHECK(text(merged.path) == "adapter <s>");

  // Training that goes on keeps it.
  ModelDir saved("onward");
  ChatTemplate::load(base.path, with_adapter(adapter.path)).save(saved.path);
  CHECK(saved.read("chat_template.jinja") == "adapter {{ bos_token }}");
}
