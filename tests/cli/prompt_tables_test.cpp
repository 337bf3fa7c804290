// The text by which a table names a prompt.
#include "temper/cli/experiments/prompt_tables.h"

#include <doctest/doctest.h>

#include <cmath>
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
  const auto chat = std::make_shared<const ChatTemplate>(ChatTemplate::parse(
      "{% for m in messages %}<|s|>{{ m.role }}\n{{ m.content }}<|e|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|s|>assistant\n{% endif %}",
      "chat", Json::object()));
  const auto part = [&](const std::string& text, bool with_chat = true) {
    return PromptNames(tokenizer, with_chat ? chat : nullptr)(tokenizer->encode(text));
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
  const PromptNames ids(nullptr, nullptr);
  CHECK(ids({4, 5}) == "token ids 4 5");
  CHECK(ids(std::vector<int32_t>(21, 4)).ends_with("4 4 ..."));
  CHECK(ids({}) == "(not known)");
}

TEST_CASE("numbers that are compared have as many digits as tell them apart") {
  const ComparedNumbers small({0.00123456, NAN, 0});
  CHECK(small(0.69314718055994529) == "0.69314718");
  CHECK(small(0.00123456) == "0.00123456");
  CHECK(small(-0.5) == "-0.50000000");
  CHECK(small(1e-7) == "1e-07");
  CHECK(small(1e-9) == "0");
  CHECK(small(0) == "0");
  CHECK(ComparedNumbers({2.71})(812.4444) == "812.44440");
  CHECK(ComparedNumbers({1234.5})(98765.4) == "98765.40");
  CHECK(ComparedNumbers({123456})(98765432.1) == "98765432");
  CHECK(ComparedNumbers({1.5e-9})(2.5e-9) == "2.5e-09");
  CHECK(ComparedNumbers({1e-30})(0.1) == "0.100000000000000");
  CHECK(ComparedNumbers({})(0.1) == "0.1");
}

TEST_CASE("a table of differences leaves out what is constant, and counts it") {
  PairedDifference some{"loss", 4, 1.25, 1.5, 0.25, 0.125, 0.25, 0.5}, same{"tokens", 4, 8, 8};
  some.mean_a += 1e-9;
  same.is_constant = true;
  const PairedTable table = difference_table("title", {some, same}, "steps", "a", "b");
  REQUIRE(table.brief.rows.size() == 2);
  const std::vector<std::string> row{"loss",
                                     "4",
                                     "1.250000",
                                     "1.500000",
                                     "0.250000",
                                     "0.125000 to 0.375000",
                                     "-0.250000 to 0.750000"};
  CHECK(table.brief.rows[0] == row);
  CHECK(table.whole.rows.size() == 2);
  CHECK(table.whole.rows[0][2] == "1.250000001");
  const PairedTable series = difference_table("title", {some}, "steps", "a", "b", true);
  CHECK(series.brief.header.back() == "if autocorrelated");
  CHECK(series.brief.rows[0].back() == "0 to 0.500000");
  REQUIRE(table.brief.rows[1].size() == 1);
  CHECK(table.brief.rows[1][0].starts_with("left out: 1 metric with"));
}
