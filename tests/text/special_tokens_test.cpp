#include "temper/text/tokenizer/special_tokens.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/text/chat/chat_template.h"
#include "tests/text/templates.h"

using namespace temper;

namespace {

std::shared_ptr<const Tokenizer> tokenizer(const std::string& post_processor) {
  return Tokenizer::parse(
      R"({"model": {"type": "BPE", "merges": [],
    "vocab": {"a": 0, "b": 1, "<s>": 2, "</s>": 3, "<end>": 4}}, "added_tokens": [)"
      R"({"id": 2, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},)"
      R"({"id": 3, "content": "</s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}],)"
      R"("post_processor": )" +
          post_processor + "}",
      "tokenizer");
}

const char* const kAround = R"({"type": "TemplateProcessing",
  "single": [{"SpecialToken": {"id": "b"}}, {"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "e"}}],
  "special_tokens": {"b": {"ids": [2]}, "e": {"ids": [3]}}})";

using Ids = std::vector<int32_t>;

}  // namespace

TEST_CASE("a text gets the post-processor's tokens, but none twice") {
  const auto around = tokenizer(kAround), none = tokenizer("null");
  CHECK(around->tokens_before_text() == Ids{2});
  CHECK(around->tokens_after_text() == Ids{3});
  for (const char* text : {"ab", "<s>ab", "ab</s>", "<s>ab</s>"})
    CHECK(encode_text(*around, text) == Ids{2, 0, 1, 3});
  CHECK(encode_text(*around, "<s><s>a") == Ids{2, 2, 0, 3});
  CHECK(encode_text(*around, "") == Ids{2, 3});
  CHECK(encode_beginning(*around, "ab") == Ids{2, 0, 1});
  CHECK(encode_text(*none, "ab") == Ids{0, 1});
  CHECK(none->tokens_before_text().empty());
}

TEST_CASE("a text's end token is the tokenizer's, else the generation config's first") {
  ModelDir folder("end_token");
  const auto t = tokenizer("null");
  CHECK_FALSE(end_token(folder.path, *t));
  folder.with("generation_config.json", R"({"eos_token_id": [4, 3]})");
  CHECK(end_token(folder.path, *t) == 4);
  folder.with("tokenizer_config.json", R"({"eos_token": {"content": "</s>"}})");
  CHECK(end_token(folder.path, *t) == 3);
  folder.with("tokenizer_config.json", R"({"eos_token": "nowhere"})");
  CHECK(end_token(folder.path, *t) == 4);
  folder.with("tokenizer_config.json", R"({"eos_token": null})");
  folder.with("generation_config.json", R"({"eos_token_id": 3})");
  CHECK(end_token(folder.path, *t) == 3);
  for (const char* id : {"-1", "5", "\"a\"", "18446744073709551615", "[[]]"}) {
    folder.with("generation_config.json", std::string(R"({"eos_token_id": )") + id + "}");
    CHECK_THROWS_AS(end_token(folder.path, *t), DataError);
  }
}

TEST_CASE("another template and its variables come from the config") {
  ModelDir folder("templates");
  folder.with("chat_template.jinja", "own {{ enable_thinking }}");
  folder.with("tokenizer_config.json", R"({"bos_token": "<s>"})");
  folder.with("other.jinja", "{{ bos_token }} other {{ enable_thinking }}");
  const nlohmann::ordered_json messages = {{{"role", "user"}, {"content", "x"}}};
  const auto render = [&](const ChatOptions& options) {
    return ChatTemplate::load(folder.path, options).render(messages, nullptr, false);
  };
  ChatOptions options;
  options.variables = R"({"enable_thinking": false})";
  CHECK(render(options) == "own False");
  options.file = folder.path + "/other.jinja";
  CHECK(render(options) == "<s> other False");
  options.variables = "[]";
  CHECK_THROWS_WITH_AS(render(options), doctest::Contains("data.template_variables"), DataError);
}
