// Which tokens of a conversation are trained, against the offsets that Hugging Face's tokenizers
// give. Goldens: tests/golden/make_template_goldens.py.
#include "temper/text/chat/conversation.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/text/chat/template_checks.h"
#include "temper/text/tokenizer/token_boundaries.h"
#include "tests/text/golden.h"
#include "tests/text/templates.h"

using namespace temper;

namespace {

// Runs [begin, end) of trained tokens. Where turns touch, one run covers them.
Json runs(const std::vector<int32_t>& labels) {
  Json out = Json::array();
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] == -100) continue;
    if (!out.empty() && out.back()[1] == i)
      out.back()[1] = i + 1;
    else
      out.push_back({i, i + 1});
  }
  return out;
}

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const DataError& e) {
    return e.what();
  }
  return {};
}

Json message(const char* role, const char* content) {
  return {{"role", role}, {"content", content}};
}
const Json kConversation = {message("user", "Hi"), message("assistant", "Ho"),
                            message("user", "He"), message("assistant", "Ha")};

TokenizedConversation whole(TrainedConversation c) {
  CHECK_FALSE(c.turn_by_turn);
  REQUIRE(c.paths.size() == 1);
  return std::move(c.paths[0]);
}

// The text that the trained tokens spell.
std::string trained_text(const Tokenizer& tokenizer, const TokenizedConversation& c) {
  std::vector<int32_t> ids;
  for (const int32_t label : c.labels) {
    if (label >= 0) ids.push_back(label);
  }
  return tokenizer.decode(ids);
}

}  // namespace

TEST_CASE("trained are the assistant's turns, by the first character of each token") {
  const Json conversations =
      read_json_file(golden_path("templates/chats.json")).at("conversations");
  const Json labels = read_json_file(golden_path("templates/labels.json"));
  int trained = 0, refused = 0;
  for (const auto& [tokenizer_name, templates] : labels.items()) {
    const auto tokenizer = golden_tokenizer(tokenizer_name);
    for (const auto& [template_name, rows] : templates.items()) {
      const ChatTemplate chat = golden_template(template_name);
      for (const auto& [conversation, want] : rows.items()) {
        CAPTURE(tokenizer_name);
        CAPTURE(template_name);
        CAPTURE(conversation);
        const Json& input = conversations.at(conversation);
        const auto tokenize = [&] {
          return whole(tokenize_conversation(*tokenizer, chat, input.at("messages"),
                                             input.at("tools"),
                                             {TrainOn::kAuto, ConversationMode::kWhole}));
        };
        if (want.is_null()) {
          CHECK(error_of(tokenize).starts_with(
              "messages: cannot tell what the assistant says in message "));
          ++refused;
          continue;
        }
        const TokenizedConversation c = tokenize();
        CHECK(c.tokens == tokenizer->encode(c.text));
        CHECK(runs(c.labels) == want);
        for (size_t i = 0; i < c.tokens.size(); ++i)
          CHECK((c.labels[i] == -100 || c.labels[i] == c.tokens[i]));
        trained += !want.empty();
      }
    }
  }
  CHECK(trained > 200);
  CHECK(refused > 20);
}

TEST_CASE("train_on chooses among all tokens, all turns and the last turn") {
  const auto tokenizer = golden_tokenizer("qwen2");
  for (const char* name : {"chatml", "chatml_generation"}) {
    CAPTURE(name);
    const auto chat = golden_template(name);
    const auto text = [&](TrainOn on) {
      return trained_text(*tokenizer,
                          whole(tokenize_conversation(*tokenizer, chat, kConversation, nullptr,
                                                      {on, ConversationMode::kAuto})));
    };
    CHECK(text(TrainOn::kAuto) == "Ho<|im_end|>\nHa<|im_end|>\n");
    CHECK(text(TrainOn::kAssistant) == text(TrainOn::kAuto));
    CHECK(text(TrainOn::kCompletion) == "Ha<|im_end|>\n");
    CHECK(text(TrainOn::kAll) == chat.render(kConversation, nullptr, false));
  }
  const auto prompted =
      whole(tokenize_conversation(*tokenizer, golden_template("chatml"), kConversation, nullptr,
                                  {TrainOn::kAuto, ConversationMode::kAuto, true}));
  CHECK(prompted.text.ends_with("<|im_start|>assistant\n"));
  CHECK(trained_text(*tokenizer, prompted) == "Ho<|im_end|>\nHa<|im_end|>\n");
}

TEST_CASE("a template that writes earlier turns differently cannot be trained whole") {
  const auto tokenizer = golden_tokenizer("qwen2");
  const auto qwen3 = golden_template("qwen3");
  const auto error = error_of([&] {
    tokenize_conversation(*tokenizer, qwen3, kConversation, nullptr,
                          {TrainOn::kAuto, ConversationMode::kWhole});
  });
  CHECK(error.find("in message 2:") != std::string::npos);
  CHECK(error.find("{% generation %}") != std::string::npos);
  // Its last turn stands as it is.
  const auto last = whole(tokenize_conversation(*tokenizer, qwen3, kConversation, nullptr,
                                                {TrainOn::kCompletion, ConversationMode::kAuto}));
  CHECK(trained_text(*tokenizer, last) == "<think>\n\n</think>\n\nHa<|im_end|>\n");

  const auto hidden = ChatTemplate::parse(
      "{% macro m(x) %}{% generation %}{{ x.content }}{% endgeneration %}{% endmacro %}"
      "{% for x in messages %}{{ m(x) }}{% endfor %}",
      "hidden", Json::object());
  CHECK(error_of([&] {
          tokenize_conversation(*tokenizer, hidden, kConversation, nullptr);
        }).find("inside a macro") != std::string::npos);
}

TEST_CASE("prompt and completion as text are tokenized apart and closed once") {
  const auto tokenizer = golden_tokenizer("llama3");
  const auto end = tokenizer->id_of("<|end|>");
  REQUIRE(end);
  // The prompt begins as the tokenizer's post-processor says; nothing stands before the completion.
  const auto prompt = tokenizer->encode("2+2 =", true), completion = tokenizer->encode(" 4");
  REQUIRE(prompt.size() == tokenizer->encode("2+2 =").size() + 1);
  std::vector<int32_t> tokens = prompt;
  tokens.insert(tokens.end(), completion.begin(), completion.end());
  tokens.push_back(*end);
  std::vector<int32_t> labels = tokens;
  std::fill(labels.begin(), labels.begin() + static_cast<std::ptrdiff_t>(prompt.size()), -100);

  for (const char* text : {" 4", " 4<|end|>"}) {
    const auto c = tokenize_prompt_completion(*tokenizer, "2+2 =", text, TrainOn::kAuto, end);
    CHECK(c.tokens == tokens);
    CHECK(c.labels == labels);
  }
  CHECK(tokenize_prompt_completion(*tokenizer, "2+2 =", " 4", TrainOn::kAll, end).labels == tokens);
  tokens.pop_back();
  CHECK(
      tokenize_prompt_completion(*tokenizer, "2+2 =", " 4", TrainOn::kAuto, std::nullopt).tokens ==
      tokens);
  CHECK(tokenize_prompt_completion(*tokenizer, "", "", TrainOn::kAuto, end).labels ==
        std::vector<int32_t>{-100, *end});
}

TEST_CASE("prompt and completion as messages train what follows the rendered prompt") {
  const auto tokenizer = golden_tokenizer("qwen2");
  const auto chat = golden_template("chatml");
  const Json prompt = {kConversation[0]};
  const Json completion = {kConversation[1], kConversation[2], kConversation[3]};
  const auto text = [&](const ChatTemplate& with, TrainOn on) {
    return trained_text(
        *tokenizer, whole(tokenize_prompt_completion(*tokenizer, with, prompt, completion, nullptr,
                                                     {on, ConversationMode::kAuto})));
  };
  CHECK(text(chat, TrainOn::kAuto) ==
        "Ho<|im_end|>\n<|im_start|>user\nHe<|im_end|>\n<|im_start|>assistant\nHa<|im_end|>\n");
  CHECK(text(chat, TrainOn::kCompletion) == text(chat, TrainOn::kAuto));
  CHECK(text(chat, TrainOn::kAssistant) == "Ho<|im_end|>\nHa<|im_end|>\n");
  CHECK(text(golden_template("chatml_generation"), TrainOn::kAssistant) ==
        "Ho<|im_end|>\nHa<|im_end|>\n");
  CHECK(text(chat, TrainOn::kAll) == chat.render(kConversation, nullptr, false));
  CHECK_FALSE(error_of([&] {
                tokenize_prompt_completion(*tokenizer, chat, prompt, Json::array(), nullptr);
              }).empty());
}

TEST_CASE("every byte of a text falls where the tokens' own texts say") {
  const auto tokenizer =
      golden_tokenizer("qwen2");  // byte-level: tokens may end within a character
  const std::string text = "The  quick\n\n\nbrown 你好🙂 fox's 3.14 naïve\t\n ends";
  const auto tokens = tokenizer->encode(text);
  // A token's begin, from the bytes of all before it that make whole characters.
  std::vector<size_t> begins;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::string decoded = tokenizer->decode(std::span(tokens).first(i));
    const auto end = std::mismatch(decoded.begin(), decoded.end(), text.begin(), text.end()).second;
    begins.push_back(static_cast<size_t>(end - text.begin()));
  }
  TokenBoundaries boundaries(*tokenizer, text, tokens);
  for (size_t byte = 0; byte <= text.size(); ++byte) {
    if (byte < text.size() && (static_cast<unsigned char>(text[byte]) & 0xc0) == 0x80) continue;
    CAPTURE(byte);
    const auto want =
        std::count_if(begins.begin(), begins.end(), [&](size_t b) { return b < byte; });
    CHECK(boundaries.tokens_before(byte) == static_cast<size_t>(want));
  }
}

TEST_CASE("a template says whether it writes tools and their calls") {
  const ChatTemplate none = golden_template("chatml"), both = golden_template("hermes");
  const Json tools = {{{"type", "function"},
                       {"function",
                        {{"name", "add"},
                         {"description", "adds"},
                         {"parameters", {{"type", "object"}, {"properties", Json::object()}}}}}}};
  const Json call = {{"type", "function"},
                     {"function", {{"name", "add"}, {"arguments", Json::object()}}}};
  const Json calls = {message("user", "2+2"),
                      {{"role", "assistant"}, {"content", ""}, {"tool_calls", {call}}}};
  CHECK_FALSE(written_tools(none, calls, tools).list);
  CHECK_FALSE(written_tools(none, calls, tools).calls);
  CHECK(written_tools(both, calls, tools).list);
  CHECK(written_tools(both, calls, tools).calls);
  // Where there are none, nothing is left out.
  CHECK(written_tools(none, kConversation, nullptr).list);
  CHECK(written_tools(none, kConversation, Json::array()).list);
  CHECK(written_tools(none, kConversation, "[]").list);
  CHECK(written_tools(none, kConversation, nullptr).calls);
}

TEST_CASE("special tokens that a message spells can be text, and the template's own stay tokens") {
  const auto tokenizer = golden_tokenizer("qwen2");
  const ChatTemplate chat = ChatTemplate::parse(
      "{% for m in messages %}{{ m.role }}: {{ m.content }}<|end|>\n{% endfor %}"
      "{% if add_generation_prompt %}assistant: {% endif %}",
      "ends", Json::object());
  const int32_t end = tokenizer->id_of("<|end|>").value();
  const auto ends_in = [&](const TokenizedConversation& c) {
    return std::count(c.tokens.begin(), c.tokens.end(), end);
  };
  const Json spelled = {message("user", "a<|end|>\nassistant: b"),
                        message("assistant", "c<|end|>d")};
  const auto parsed = whole(tokenize_conversation(*tokenizer, chat, spelled, nullptr));
  CHECK(ends_in(parsed) == 4);
  Json quoted = spelled;
  for (Json& m : quoted) m["content"] = tokenizer->quoted(m["content"].get<std::string>());
  ConversationOptions options;
  options.quotes = Tokenizer::Quotes::kMarked;
  const auto text = whole(tokenize_conversation(*tokenizer, chat, quoted, nullptr, options));
  CHECK(ends_in(text) == 2);
  CHECK(text.text == parsed.text);
  CHECK(tokenizer->decode(text.tokens) == parsed.text);
  CHECK(trained_text(*tokenizer, text) == trained_text(*tokenizer, parsed));
  // Text that spells none is tokenized as ever.
  const auto plain =
      whole(tokenize_conversation(*tokenizer, chat, kConversation, nullptr, options));
  CHECK(plain.tokens ==
        whole(tokenize_conversation(*tokenizer, chat, kConversation, nullptr)).tokens);
  const auto pair = tokenize_prompt_completion(*tokenizer, tokenizer->quoted("<|end|>x"),
                                               tokenizer->quoted("y<|end|>"), TrainOn::kCompletion,
                                               end, SIZE_MAX, Tokenizer::Quotes::kMarked);
  CHECK(ends_in(pair) == 1);  // the one that ends it
  CHECK(pair.text == "<|end|>xy<|end|>");
}
