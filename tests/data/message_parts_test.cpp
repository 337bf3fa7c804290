// Messages whose content is a list of text parts: tests/golden/make_template_goldens.py has what
// transformers renders of the lists where a template writes all their texts, and of the joined
// texts where it does not.
#include "temper/text/chat/message_parts.h"

#include <doctest/doctest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/data/rows/preference_row.h"
#include "temper/data/rows/sft_row.h"
#include "temper/text/chat/dialogue.h"
#include "tests/text/golden.h"
#include "tests/text/templates.h"

using namespace temper;
using namespace temper::data;

namespace {

const Json& goldens() {
  static const Json file = read_json_file(golden_path("templates/parts.json"));
  return file;
}

Json row_of(const Json& conversation) {
  Json row = {{"messages", conversation.at("messages")}};
  if (!conversation.at("tools").is_null()) row["tools"] = conversation.at("tools");
  return row;
}

template <class Format>
void use_template(Format& format, const std::string& name) {
  format.chat = std::make_shared<const ChatTemplate>(golden_template(name));
  format.max_length = 1 << 20;
  format.vocabulary = 1 << 20;
}

// Runs [begin, end) of trained tokens.
Json runs_of(const std::vector<int32_t>& labels) {
  Json runs = Json::array();
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] < 0) continue;
    if (i == 0 || labels[i - 1] < 0) runs.push_back({i, i});
    runs.back()[1] = i + 1;
  }
  return runs;
}

const Json kParts = {{{"type", "text"}, {"text", "What is"}},
                     {{"type", "text"}, {"text", " 2+2?"}}};

}  // namespace

TEST_CASE("a template that reads parts gets them, another one their joined text") {
  std::map<std::string, std::shared_ptr<const Tokenizer>> tokenizers;
  for (const char* name : {"qwen2", "gemma"}) tokenizers[name] = golden_tokenizer(name);
  int read = 0, joined = 0, trained = 0;
  for (const auto& [name, results] : goldens().at("results").items()) {
    if (name == "qwen2") continue;  // its template is not among the goldens
    SftFormat format;
    use_template(format, name);
    format.conversation = ConversationMode::kWhole;
    for (const auto& [conversation, expected] : results.items()) {
      CAPTURE(name);
      CAPTURE(conversation);
      const Json& input = goldens().at("conversations").at(conversation);
      const std::string role = conversation.substr(0, conversation.find('_'));
      CHECK(Json(format.chat->reads_parts(role, input.at("tools"))) == expected.at("reads"));
      ++(expected.at("reads").get<bool>() ? read : joined);
      const Json row = normalized_row(format, row_of(input), "row"), tools = tools_of(row);
      CHECK(Json(format.chat->render(row["messages"], tools, false)) == expected.at("text"));
      CHECK(Json(format.chat->render(row["messages"], tools, true)) == expected.at("prompted"));
      for (const auto& [tokenizer, runs] : expected.at("runs").items()) {
        if (runs.is_null()) continue;  // not trained whole
        CAPTURE(tokenizer);
        format.tokenizer = tokenizers.at(tokenizer);
        bool truncated = false;
        const auto trained_row = read_sft_row(format, row_of(input), "row", &truncated);
        REQUIRE(trained_row.has_value());
        CHECK(runs_of(trained_row->segments.at(0).labels) == runs);
        ++trained;
      }
    }
  }
  CHECK(read == 11);
  CHECK(joined > 60);
  CHECK(trained > 100);
}

TEST_CASE("prompts and pairs of parts are what the template writes of them") {
  for (const bool reads : {false, true}) {
    CAPTURE(reads);
    PreferenceFormat format;
    use_template(format, reads ? "gemma4" : "gemma2");
    format.tokenizer = golden_tokenizer("gemma");
    const Json asked = {{{"role", "user"}, {"content", kParts}}};
    const std::vector<int32_t> prompt =
        prompt_tokens(format, normalized_row(format, {{"prompt", asked}}, "row"), "row");
    CHECK((format.tokenizer->decode(prompt).find("What is2+2?") != std::string::npos) == reads);
    // A text prompt that both sides begin with, as parts or not.
    const auto side = [&](const Json& content, const char* answer) {
      return Json{{{"role", "user"}, {"content", content}},
                  {{"role", "assistant"}, {"content", answer}}};
    };
    bool truncated = false;
    const auto pair = read_preference_row(format,
                                          {{"prompt", "What is 2+2?"},
                                           {"chosen", side(kParts, "4")},
                                           {"rejected", side(kParts, "5")}},
                                          "row", &truncated);
    REQUIRE(pair.has_value());
    CHECK(pair->path(Side::kChosen, true).tokens == prompt);
  }
}

TEST_CASE("parts of a role or of text that no template reads") {
  const ChatTemplate chat = golden_template("gemma4");
  CHECK(chat.reads_parts("user", Json()));
  CHECK(!chat.reads_parts("critic", Json()));
  Json messages = {{{"role", "critic"}, {"content", kParts}}};
  join_unread_parts(messages, &chat, Json());
  CHECK(messages[0]["content"] == "What is 2+2?");
  messages = {{{"role", "user"}, {"content", kParts}}};
  CHECK(joined_contents(messages) == "What is 2+2?");
  join_unread_parts(messages, nullptr, Json());
  CHECK(messages[0]["content"] == "What is 2+2?");
  // Templates that print the list, or that take its first part.
  const auto reads = [](const char* source) {
    return ChatTemplate::parse(source, "test", Json::object()).reads_parts("user", Json());
  };
  CHECK(!reads("{{ messages[0].content }}"));
  CHECK(!reads("{{ messages[0].content | tojson }}"));
  CHECK(!reads("{{ messages[0].content[0].text }}"));
  CHECK(!reads("{{ messages[0].content | reverse | map(attribute='text') | join }}"));
  CHECK(!reads("{{ raise_exception('no') }}"));
  CHECK(reads("{{ messages[0].content | map(attribute='text') | join(' ') }}"));
}
