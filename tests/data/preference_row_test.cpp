// Rows of preferences: their formats, their trees, and what is wrong with them.
#include "temper/data/rows/preference_row.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/data/rows/row_groups.h"
#include "tests/data/said.h"
#include "tests/golden.h"

using namespace temper;
using namespace temper::data;

namespace {

PreferenceFormat pair_format(const std::string& chat = "chatml") {
  const Json file = read_json_file(golden_path("tokenizers/qwen2.json"));
  static const std::shared_ptr<const Tokenizer> tokenizer =
      Tokenizer::parse(file.at("tokenizer").dump(), "qwen2");
  static const Json variables = read_json_file(golden_path("templates/chats.json"))["variables"];
  PreferenceFormat format;
  format.tokenizer = tokenizer;
  format.chat = std::make_shared<const ChatTemplate>(
      ChatTemplate::parse(read_file(golden_path("templates/" + chat + ".jinja")), chat, variables));
  format.vocabulary = tokenizer->vocab_size();
  format.max_length = 1000;
  format.train_on = TrainOn::kCompletion;
  format.eos = 7;
  return format;
}

PreferenceRow pair_in(const PreferenceFormat& format, const Json& row) {
  bool truncated = false;
  return read_preference_row(format, row, "rows.jsonl:7", &truncated).value();
}

std::string pair_error(const PreferenceFormat& format, const Json& row) {
  try {
    pair_in(format, row);
  } catch (const DataError& e) {
    return e.what();
  }
  return "no error";
}

// A side's tokens and labels are those that supervised tuning makes of the prompt and completion.
void check_as_sft(const PreferenceFormat& format, const PreferenceRow& row, Side side,
                  const Json& prompt, const Json& completion) {
  bool truncated = false;
  const SftRow sft =
      *read_sft_row(format, {{"prompt", prompt}, {"completion", completion}}, "sft", &truncated);
  TokenPath all = row.path(side, true);
  const TokenPath rest = row.path(side, false);
  all.tokens.insert(all.tokens.end(), rest.tokens.begin(), rest.tokens.end());
  all.labels.insert(all.labels.end(), rest.labels.begin(), rest.labels.end());
  CHECK(all.tokens == sft.segments.at(0).tokens);
  CHECK(all.labels == sft.segments.at(0).labels);
  CHECK(row.supervised(side) == sft.supervised());
}

using Ids = std::vector<int32_t>;

}  // namespace

TEST_CASE("a side's tokens are those of supervised tuning") {
  const PreferenceFormat format = pair_format();
  const Json text = {{"prompt", "What is 2+2? "}, {"chosen", "It is 4."}, {"rejected", "It is 5."}};
  const PreferenceRow row = pair_in(format, text);
  check_as_sft(format, row, Side::kChosen, text["prompt"], text["chosen"]);
  check_as_sft(format, row, Side::kRejected, text["prompt"], text["rejected"]);
  CHECK(row.segments.size() == 4);  // the prompt, "It is ", and what differs
  CHECK(row.num_computed() < row.num_tokens());
  CHECK(row.trains(7));
  const Json question = {said("user", "What is 2+2?")};
  const Json chosen = {said("assistant", "4")}, rejected = {said("assistant", "5")};
  for (const char* name : {"chatml", "qwen3", "llama31", "gemma3"}) {
    CAPTURE(name);
    const PreferenceFormat chat = pair_format(name);
    const PreferenceRow pair =
        pair_in(chat, {{"prompt", question}, {"chosen", chosen}, {"rejected", rejected}});
    check_as_sft(chat, pair, Side::kChosen, question, chosen);
    check_as_sft(chat, pair, Side::kRejected, question, rejected);
  }
}

TEST_CASE("without a prompt, what the sides begin with alike is the prompt") {
  const PreferenceFormat format = pair_format();
  const auto tokens = [](const PreferenceRow& row) {
    Ids all;
    for (const PreferenceRow::Segment& s : row.segments) {
      all.push_back(s.prompt ? -1 : -2);
      all.insert(all.end(), s.tokens.begin(), s.tokens.end());
    }
    return all;
  };
  const Json question = said("user", "Why?"), good = said("assistant", "So."),
             bad = said("assistant", "No.");
  const Ids expected =
      tokens(pair_in(format, {{"prompt", {question}}, {"chosen", {good}}, {"rejected", {bad}}}));
  const auto same = [&](const Json& row) { CHECK(tokens(pair_in(format, row)) == expected); };
  same({{"chosen", {question, good}}, {"rejected", {question, bad}}});
  same({{"prompt", {question}}, {"chosen", good}, {"rejected", bad}});
  same({{"prompt", "Why?"}, {"chosen", {question, good}}, {"rejected", {question, bad}}});
  same({{"prompt", "Why?"}, {"chosen", {good}}, {"rejected", {bad}}});
  CHECK(tokens(pair_in(format, {{"chosen", "Q: x A: yes"}, {"rejected", "Q: x A: no"}})) ==
        tokens(pair_in(format, {{"prompt", "Q: x A:"}, {"chosen", " yes"}, {"rejected", " no"}})));
  CHECK_THROWS_WITH_AS(
      pair_in(format, {{"question", "Why?"}, {"chosen", "So."}, {"rejected", "No."}}),
      doctest::Contains("the row has no `prompt`, and `chosen` and `rejected` begin with nothing"),
      DataError);
}

TEST_CASE("ids: what both sides share stands once") {
  PreferenceFormat format;
  format.vocabulary = 50;
  const auto row = [&](Ids prompt, Ids chosen, Ids rejected) {
    return pair_in(format,
                   {{"prompt_ids", prompt}, {"chosen_ids", chosen}, {"rejected_ids", rejected}});
  };
  const PreferenceRow parts = row({1, 2}, {3, 4, 5}, {3, 6});
  REQUIRE(parts.segments.size() == 4);
  CHECK(parts.segments[0].prompt);
  CHECK(parts.segments[1].tokens == Ids{3});
  CHECK((parts.segments[1].chosen && parts.segments[1].rejected));
  CHECK(parts.segments[3].parent == 1);
  CHECK(parts.supervised(Side::kChosen) == 3);
  CHECK(parts.supervised(Side::kRejected) == 2);
  CHECK(parts.num_tokens() == 9);
  CHECK(parts.num_computed() == 6);
  const PreferenceRow beginning = row({1}, {3, 4}, {3, 4, 5});
  CHECK(beginning.segments.size() == 3);
  CHECK(beginning.path(Side::kChosen, false).tokens == Ids{3, 4});
  const PreferenceRow without = row({}, {3, 4}, {5, 6});  // the first token has nothing before it
  CHECK(without.segments.size() == 2);
  CHECK(without.supervised(Side::kChosen) == 1);
}

TEST_CASE("rows are cut, dropped or refused by their longer side") {
  PreferenceFormat format;
  format.vocabulary = 50;
  format.max_length = 4;
  const Json row = {{"prompt_ids", {1, 2}}, {"chosen_ids", {3, 4, 5, 6}}, {"rejected_ids", {7}}};
  bool truncated = false;
  const auto cut = read_preference_row(format, row, "f:1", &truncated);
  CHECK(truncated);
  CHECK(cut->supervised(Side::kChosen) == 2);
  CHECK(cut->supervised(Side::kRejected) == 1);
  const Json long_prompt = {
      {"prompt_ids", {1, 2, 3, 4, 5}}, {"chosen_ids", {6}}, {"rejected_ids", {7}}};
  CHECK_FALSE(read_preference_row(format, long_prompt, "f:1", &truncated));
  format.overlong = Overlong::kDrop;
  CHECK_FALSE(read_preference_row(format, row, "f:1", &truncated));
  format.overlong = Overlong::kError;
  CHECK(pair_error(format, row).starts_with("rows.jsonl:7: 6 tokens; data.max_length is 4"));
}

TEST_CASE("margins, labels and renamed fields") {
  PreferenceFormat format;
  format.vocabulary = 50;
  const Json pair = {
      {"prompt_ids", {1}}, {"chosen_ids", {2}}, {"rejected_ids", {3}}, {"margin", 0.5}};
  CHECK(pair_in(format, pair).margin == 0.5);
  const Json single = {{"prompt_ids", {1}}, {"completion_ids", {2}}, {"label", false}};
  CHECK(pair_error(format, single).find("expected prompt, chosen and rejected") !=
        std::string::npos);
  format.unpaired = true;
  const PreferenceRow bad = pair_in(format, single);
  CHECK_FALSE(bad.has(Side::kChosen));
  CHECK(bad.supervised(Side::kRejected) == 1);
  for (const std::string text : {"true", "False", "1", "0"}) {
    Json row = single;
    row["label"] = text;
    CHECK(
        pair_in(format, row).has(text == "true" || text == "1" ? Side::kChosen : Side::kRejected));
  }
  CHECK(pair_error(format, {{"prompt_ids", {1}}, {"completion_ids", {2}}, {"label", "yes"}})
            .ends_with("`label` must be true or false"));
  CHECK(pair_in(format, pair).paired());
  format.columns = {{"chosen_ids", "good"}, {"rejected_ids", "bad"}};
  CHECK(pair_in(format, {{"prompt_ids", {1}}, {"good", {2}}, {"bad", {3}}})
            .path(Side::kRejected, false)
            .tokens == Ids{3});
}

TEST_CASE("what is wrong with a row is said with its line") {
  const PreferenceFormat format = pair_format();
  const auto begins = [&](const Json& row, const std::string& message) {
    const std::string found = pair_error(format, row);
    CAPTURE(found);
    CHECK(found.starts_with("rows.jsonl:7: " + message));
  };
  begins({{"prompt", "a"}, {"chosen", "b"}}, "the pair has no `rejected`, only [prompt, chosen]");
  begins({{"prompt", "a"}, {"chosen", "b"}, {"rejected", "b"}},
         "`chosen` and `rejected` are equal");
  begins({{"prompt", "a"}, {"chosen", ""}, {"rejected", "b"}}, "`chosen` is empty");
  begins({{"prompt_ids", {1}}, {"chosen_ids", {2}}, {"rejected_ids", Json::array()}},
         "`rejected_ids` is empty");
  begins({{"chosen_ids", {2}}, {"rejected_ids", {3}}}, "the pair has no `prompt_ids`");
  begins({{"prompt_ids", {1}}, {"chosen_ids", {2}}, {"rejected_ids", {1000000000}}},
         "`rejected_ids` holds 1000000000");
  begins({{"prompt", "a"}, {"chosen", 3}, {"rejected", "b"}}, "`chosen` must be text or messages");
  begins({{"prompt", "a"}, {"completion", "b"}},
         "the row has [prompt, completion]; expected prompt, chosen and rejected");
  begins({{"prompt", "a"}, {"chosen", "b"}, {"rejected", "c"}, {"margin", "x"}},
         "`margin` must be a number");
}

TEST_CASE("a pair that data.balance counts is read as any other") {
  PreferenceFormat format;
  format.vocabulary = 50;
  format.groups = std::make_shared<const RowGroups>("source", "");
  const Json pair = {
      {"prompt_ids", {1}}, {"chosen_ids", {2}}, {"rejected_ids", {3}}, {"source", "web"}};
  CHECK(pair_in(format, pair).paired());
}
