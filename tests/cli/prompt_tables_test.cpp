// The text by which a table names a prompt.
#include "temper/cli/experiments/prompt_tables.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "temper/base/json.h"

using namespace temper;
using namespace temper::cli;

namespace {

// Every character a token; <|s|>, <|e|> and <|i|> are special.
std::shared_ptr<const Tokenizer> letters() {
  Json vocabulary = Json::object();
  for (char c = '!'; c <= '~'; ++c) vocabulary[std::string(1, c)] = vocabulary.size();
  vocabulary["Ġ"] = vocabulary.size();
  vocabulary["Ċ"] = vocabulary.size();
  Json added = Json::array();
  for (const char* text : {"<|s|>", "<|e|>", "<|i|>"}) {
    added.push_back({{"id", vocabulary.size()},
                     {"content", text},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
    vocabulary[text] = vocabulary.size();
  }
  const Json bytes = {{"type", "ByteLevel"},
                      {"add_prefix_space", false},
                      {"trim_offsets", true},
                      {"use_regex", false}};
  const Json model = {{"type", "BPE"},
                      {"dropout", nullptr},
                      {"unk_token", nullptr},
                      {"continuing_subword_prefix", nullptr},
                      {"end_of_word_suffix", nullptr},
                      {"fuse_unk", false},
                      {"byte_fallback", false},
                      {"merges", Json::array()},
                      {"vocab", vocabulary}};
  return Tokenizer::parse(dump_json({{"version", "1.0"},
                                     {"truncation", nullptr},
                                     {"padding", nullptr},
                                     {"normalizer", nullptr},
                                     {"post_processor", nullptr},
                                     {"added_tokens", added},
                                     {"pre_tokenizer", bytes},
                                     {"decoder", bytes},
                                     {"model", model}}),
                          "letters");
}

}  // namespace

TEST_CASE("a prompt is named by its last user's message, cut in the middle") {
  const auto tokenizer = letters();
  const ChatTemplate chat = ChatTemplate::parse(
      "{% for m in messages %}<|s|>{{ m.role }}\n{{ m.content }}<|e|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|s|>assistant\n{% endif %}",
      "chat", Json::object());
  const auto part = [&](const std::string& text, bool with_chat = true) {
    return last_user_part(tokenizer->encode(text), tokenizer.get(), with_chat ? &chat : nullptr);
  };
  const std::string prompt = "<|s|>system\nBe brief.<|e|>\n<|s|>user\nWhat is 1000000+1?<|e|>\n";
  CHECK(part(prompt + "<|s|>assistant\n") == "What is 1000000+1?");
  // Behind the user there may be turns with tools, or another beginning of the answer.
  CHECK(part(prompt + "<|s|>assistant\ncall<|e|>\n<|s|>tool\n7<|e|>\n<|s|>assistant\n<think>") ==
        "What is 1000000+1?");
  CHECK(part("<|s|>user\n<|i|><|i|><|i|><|i|>Two\nlines<|e|>\n<|s|>assistant\n") ==
        "<|i|>Two\\nlines");
  // A text without a template, or not in its form.
  CHECK(part("12+34=", false) == "12+34=");
  CHECK(part("12+34=") == "12+34=");
  CHECK(part(std::string(100, 'a') + std::string(100, 'b')) ==
        std::string(80, 'a') + " ... " + std::string(80, 'b'));
  CHECK(last_user_part({4, 5}, nullptr, nullptr) == "token ids 4 5");
  CHECK(last_user_part(std::vector<int32_t>(21, 4), nullptr, nullptr).ends_with("4 4 ..."));
}
