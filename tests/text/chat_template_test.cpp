// Chat templates in the shapes of today's models against transformers' apply_chat_template, and
// where a model directory keeps its template and tokens. Goldens:
// tests/golden/make_template_goldens.py.
#include "temper/text/chat/chat_template.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/text/chat/template_date.h"
#include "tests/text/templates.h"

using namespace temper;
namespace fs = std::filesystem;

namespace {

// Json of the text, or null when the template raises.
Json rendered(const ChatTemplate& chat, const Json& conversation, bool prompt) {
  try {
    return chat.render(conversation.at("messages"), conversation.at("tools"), prompt);
  } catch (const DataError&) {
    return nullptr;
  }
}

Json expected(const Json& row, bool prompt) {
  if (!prompt) return row.at("text");
  if (row.contains("prompt")) {
    return row.at("text").get<std::string>() + row.at("prompt").get<std::string>();
  }
  return row.value("prompted", Json());
}

}  // namespace

TEST_CASE("templates of today's models render conversations as transformers does") {
  const Json file = read_json_file(golden_path("templates/chats.json"));
  int checked = 0;
  for (const auto& [name, results] : file.at("results").items()) {
    std::string path = golden_path("templates/" + name + ".jinja");
    if (name == "qwen2") path = source_path("../shared/data/tokenizers/qwen2/chat_template.jinja");
    if (!fs::exists(path)) {
      MESSAGE("skipped, no such file: ", path);
      continue;
    }
    const auto chat =
        ChatTemplate::parse(read_file(path), name, file.at("variables"), golden_options());
    for (const auto& [conversation, row] : results.items()) {
      CAPTURE(name);
      CAPTURE(conversation);
      const Json& input = file.at("conversations").at(conversation);
      for (const bool prompt : {false, true}) {
        CHECK(rendered(chat, input, prompt) == expected(row, prompt));
        ++checked;
      }
      if (!row.contains("spans")) continue;
      const auto spans =
          chat.render_with_spans(input.at("messages"), input.at("tools"), false).generations;
      CHECK(Json(spans) == row.at("spans"));
    }
  }
  CHECK(checked > 500);
}

TEST_CASE("the template is found where directories keep it, files before the config") {
  const ModelDir empty("empty");
  CHECK_FALSE(ChatTemplate::exists(empty.path));
  CHECK_THROWS_AS(ChatTemplate::load(empty.path), DataError);

  ModelDir dir("order");
  dir.with("chat_template.json", R"({"chat_template": "processor"})");
  CHECK(ChatTemplate::load(dir.path).render(kMessages, nullptr, false) == "processor");
  dir.with("tokenizer_config.json", R"({"chat_template": "config"})");
  CHECK(ChatTemplate::load(dir.path).render(kMessages, nullptr, false) == "config");
  dir.with("chat_template.jinja", "file");
  CHECK(ChatTemplate::load(dir.path).render(kMessages, nullptr, false) == "file");
  CHECK(ChatTemplate::load(dir.path).render(kMessages, kTools, false) == "file");
  dir.with("additional_chat_templates/tool_use.jinja", "file with {{ tools[0].name }}");
  CHECK(ChatTemplate::load(dir.path).render(kMessages, nullptr, false) == "file");
  CHECK(ChatTemplate::load(dir.path).render(kMessages, kTools, false) == "file with f");
  CHECK(ChatTemplate::exists(dir.path));
}

TEST_CASE("a list of named templates has a default and one for tools") {
  ModelDir dir("named");
  dir.with("tokenizer_config.json", R"({"chat_template": [{"name": "default", "template": "plain"},
           {"name": "tool_use", "template": "tools"}, {"name": "rag", "template": "{% broken"}]})");
  const auto chat = ChatTemplate::load(dir.path);
  CHECK(chat.render(kMessages, nullptr, false) == "plain");
  CHECK(chat.render(kMessages, Json::array(), false) == "tools");
  dir.with("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "x"}]})");
  CHECK_THROWS_AS(ChatTemplate::load(dir.path).render(kMessages, nullptr, false), DataError);
  dir.with("tokenizer_config.json", R"({"chat_template": [{"name": "default"}]})");
  CHECK_THROWS_AS(ChatTemplate::load(dir.path), DataError);
}

TEST_CASE("templates see the special tokens, however they are written down") {
  ModelDir dir("tokens");
  dir.with("tokenizer_config.json",
           R"({"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false},
      "pad_token": null, "image_token": "<img>", "add_bos_token": true, "model_max_length": 5,
      "extra_special_tokens": {"audio": "<aud>"},
      "chat_template": "{{ bos_token }}{{ eos_token }}{{ pad_token is defined }}{{ image_token }}{{ audio }}"})");
  CHECK(ChatTemplate::load(dir.path).render(kMessages, nullptr, false) == "<s></s>False<img><aud>");
  dir.with("special_tokens_map.json", R"({"bos_token": {"content": "<b>"}})");
  CHECK(ChatTemplate::load(dir.path).render(kMessages, nullptr, false) == "<b></s>False<img><aud>");
}

TEST_CASE("messages that are none are refused by their place") {
  const auto chat = ChatTemplate::parse("x", "t", Json::object());
  const auto error = [&](const Json& messages, const Json& tools) -> std::string {
    try {
      chat.render(messages, tools, false);
    } catch (const DataError& e) {
      return e.what();
    }
    return {};
  };
  CHECK(error(Json::array(), nullptr) ==
        "messages: empty; a conversation has at least one message");
  CHECK(error({{{"role", "user"}}, 5}, nullptr) ==
        "messages: message 2 is not an object with a `role`; expected {role, content}");
  CHECK(error("text", nullptr) == "messages: expected a list of {role, content}");
  CHECK(error(kMessages, "f").starts_with("tools: not valid JSON"));  // text is read as JSON
  CHECK(error(kMessages, {1}) == "tools: tool 1 is not a JSON schema object");
}

TEST_CASE("the date in a template is that of loading it") {
  jinja::RenderOptions options;
  int calls = 0;
  options.clock = [&calls] {
    std::tm time{};
    time.tm_mday = ++calls;
    return time;
  };
  const auto chat = ChatTemplate::parse("{{ strftime_now('%d') }}", "t", Json::object(), options);
  CHECK(chat.render(kMessages, nullptr, false) == "01");
  CHECK(chat.render(kMessages, nullptr, false) == "01");
  CHECK(chat.writes_date());
  CHECK(chat.at_now().render(kMessages, nullptr, false) == "02");
  CHECK(chat.render(kMessages, nullptr, false) == "01");
  CHECK_FALSE(ChatTemplate::parse("{{ messages }}", "t", Json::object()).writes_date());
}

TEST_CASE("a date is written and read back, with the days of week and year") {
  const std::tm time = parse_date("2024-12-31T23:59:58", "key");
  CHECK(to_date_text(time) == "2024-12-31T23:59:58");
  CHECK(time.tm_wday == 2);
  CHECK(time.tm_yday == 365);
  CHECK(to_date_text(parse_date("2024-07-26", "key")) == "2024-07-26T00:00:00");
  CHECK(to_date_text(parse_date("2024-07-26 01:02:03", "key")) == "2024-07-26T01:02:03");
  for (const char* wrong : {"", "today", "2024", "2024-02-30", "2024-13-01", "26 Jul 2024",
                            "2024-07-26T", "2024-07-26T10:00", "2024-07-26T25:00:00", "2024-07-26x",
                            "2024-07-26x10:00:00", "-2024-07-26"})
    CHECK_THROWS_WITH_AS(parse_date(wrong, "key"), doctest::Contains("key: found `"), ConfigError);
}
