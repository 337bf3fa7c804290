// Rows of supervised tuning and prompts from every format. The table of what is trained under the
// templates of many models is tests/golden/templates/trained.json, by make_trained_goldens.py.
#include "temper/data/rows/sft_row.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/data/rows/preference_row.h"
#include "temper/data/rows/prompt_row.h"
#include "temper/data/rows/row_notices.h"
#include "tests/data/said.h"
#include "tests/text/golden.h"
#include "tests/text/templates.h"

using namespace temper;
using namespace temper::data;

namespace {

SftFormat format_with(const std::string& chat) {
  static const auto tokenizer = golden_tokenizer("qwen2");
  SftFormat format;
  format.tokenizer = tokenizer;
  format.chat = std::make_shared<const ChatTemplate>(golden_template(chat));
  format.vocabulary = tokenizer->vocab_size();
  format.max_length = 100000;
  return format;
}

SftRow row_in(const SftFormat& format, const Json& row) {
  bool truncated = false;
  return read_sft_row(format, row, "rows.jsonl:7", &truncated).value();
}

std::string error_of(const SftFormat& format, const Json& row) {
  try {
    row_in(format, row);
  } catch (const DataError& e) {
    return e.what();
  }
  return {};
}

// The trained tokens as text, a "|" after each run of them.
std::string trained(const SftFormat& format, const SftRow& row) {
  std::string out;
  for (const Segment& s : row.segments) {
    std::vector<int32_t> run;
    for (size_t i = 0; i <= s.labels.size(); ++i) {
      if (i < s.labels.size() && s.labels[i] >= 0) {
        run.push_back(s.labels[i]);
      } else if (!run.empty()) {
        out += format.tokenizer->decode(run) + "|";
        run.clear();
      }
    }
  }
  return out;
}
std::string trained(const SftFormat& format, const Json& row) {
  return trained(format, row_in(format, row));
}

// All tokens of the row's only segment as text.
std::string whole_text(const SftFormat& format, const Json& row) {
  const SftRow out = row_in(format, row);
  REQUIRE(out.segments.size() == 1);
  return format.tokenizer->decode(out.segments[0].tokens);
}

const Json kTalk = {said("user", "Hi"), said("assistant", "Ho"), said("user", "He"),
                    said("assistant", "Ha")};

}  // namespace

TEST_CASE("what is trained under each chat template") {
  const Json golden = read_json_file(golden_path("templates/trained.json"));
  int whole = 0, turns = 0, refused = 0;
  for (const auto& [name, rows] : golden.at("results").items()) {
    SftFormat format = format_with(name);
    for (const auto& [conversation, want] : rows.items()) {
      CAPTURE(name);
      CAPTURE(conversation);
      const Json row = golden.at("conversations").at(conversation);
      format.conversation = ConversationMode::kAuto;
      if (want.at("mode").is_null()) {
        const bool system = row["messages"][0]["role"] == "system";
        CHECK(error_of(format, row)
                  .starts_with("rows.jsonl:7: messages: cannot tell what the assistant says in "
                               "message " +
                               std::string(system ? "3: " : "2: ")));
        ++refused;
        continue;
      }
      const SftRow out = row_in(format, row);
      CHECK(out.supervised() == want.at("trained"));
      CHECK(out.num_tokens() == want.at("tokens"));
      CHECK(out.num_computed() == want.at("computed"));
      CHECK(out.untrained.empty());
      const bool is_whole = want.at("mode") == "whole";
      CHECK(out.path_lengths.empty() == is_whole);
      (is_whole ? whole : turns) += 1;
      // Turn by turn each target is there, in any case.
      format.conversation = ConversationMode::kTurns;
      std::string targets;
      for (const Json& target : want.at("targets")) targets += target.get<std::string>() + "|";
      const TrainedConversation paths =
          tokenize_conversation(*format.tokenizer, *format.chat, row["messages"], row["tools"],
                                {TrainOn::kAuto, ConversationMode::kTurns});
      std::string found;
      for (const TokenizedConversation& path : paths.paths) {
        std::vector<int32_t> ids;
        for (const int32_t label : path.labels)
          if (label >= 0) ids.push_back(label);
        found += format.tokenizer->decode(ids) + "|";
        CHECK(path.tokens == format.tokenizer->encode(path.text));
      }
      CHECK(found == targets);
      format.conversation = ConversationMode::kWhole;
      CHECK(error_of(format, row).empty() == is_whole);
    }
  }
  CHECK(whole > 30);
  CHECK(turns > 8);
  CHECK(refused > 5);
}

TEST_CASE("turn by turn, max_length holds for each path") {
  SftFormat format = format_with("qwen3");
  const SftRow full = row_in(format, {{"messages", kTalk}});
  REQUIRE(full.path_lengths.size() == 2);
  const std::string both = trained(format, full);
  CHECK(both == "<think>\n\n</think>\n\nHo<|im_end|>\n|<think>\n\n</think>\n\nHa<|im_end|>\n|");

  format.max_length = full.path_lengths[0];
  bool truncated = false;
  auto cut = read_sft_row(format, {{"messages", kTalk}}, "rows.jsonl:7", &truncated);
  CHECK(truncated);
  CHECK(trained(format, *cut) == "<think>\n\n</think>\n\nHo<|im_end|>\n|");
  CHECK(cut->num_tokens() == full.path_lengths[0]);

  format.max_length = 3;
  cut = read_sft_row(format, {{"messages", kTalk}}, "rows.jsonl:7", &truncated);
  CHECK(cut->supervised() == 0);
  CHECK(cut->num_computed() == 3);
  CHECK(cut->untrained == "data.max_length 3 cuts it before its first trained token");

  format.max_length = full.path_lengths[1] - 1;
  format.overlong = Overlong::kDrop;
  CHECK_FALSE(read_sft_row(format, {{"messages", kTalk}}, "rows.jsonl:7", &truncated));
  format.overlong = Overlong::kError;
  CHECK(error_of(format, {{"messages", kTalk}}).starts_with("rows.jsonl:7: "));
}

TEST_CASE("train_on chooses the turns that have paths") {
  SftFormat format = format_with("qwen3");
  format.train_on = TrainOn::kCompletion;
  CHECK(trained(format, {{"messages", kTalk}}) == "<think>\n\n</think>\n\nHa<|im_end|>\n|");
  format.train_on = TrainOn::kAll;
  CHECK(row_in(format, {{"messages", kTalk}}).path_lengths.empty());
  format.conversation = ConversationMode::kTurns;
  CHECK(error_of(format, {{"messages", kTalk}}).find("data.conversation: turns needs") !=
        std::string::npos);
}

TEST_CASE("a completion of several turns is trained turn by turn where it must be") {
  const Json row = {{"prompt", {kTalk[0]}}, {"completion", {kTalk[1], kTalk[2], kTalk[3]}}};
  CHECK(trained(format_with("qwen3"), row) ==
        "<think>\n\n</think>\n\nHo<|im_end|>\n|<think>\n\n</think>\n\nHa<|im_end|>\n|");
  CHECK(trained(format_with("chatml"), row) ==
        "Ho<|im_end|>\n<|im_start|>user\nHe<|im_end|>\n<|im_start|>assistant\nHa<|im_end|>\n|");
}

TEST_CASE("turns that are switched off are context alone") {
  for (const char* name : {"chatml", "qwen3", "chatml_generation"}) {
    CAPTURE(name);
    const SftFormat format = format_with(name);
    const std::string last =
        trained(format, {{"messages", {kTalk[0], kTalk[1], kTalk[2], said("assistant", "Ha")}}});
    for (const Json& off : {Json{{"weight", 0}}, Json{{"train", false}}, Json{{"weight", 0.0}}}) {
      Json talk = kTalk;
      talk[1].update(off);
      const std::string text = trained(format, {{"messages", talk}});
      CHECK(text.find("Ho") == std::string::npos);
      CHECK(text.find("Ha<|im_end|>") != std::string::npos);
      CHECK(last.ends_with(text));
    }
  }
  SftFormat format = format_with("chatml");
  Json talk = kTalk;
  talk[1]["weight"] = 0;
  CHECK(trained(format, {{"prompt", {talk[0]}}, {"completion", {talk[1], talk[2], talk[3]}}}) ==
        "<|im_start|>user\nHe<|im_end|>\n<|im_start|>assistant\nHa<|im_end|>\n|");
  talk[3]["train"] = false;
  CHECK(row_in(format, {{"messages", talk}}).untrained ==
        "the assistant says nothing in it that is trained");
  talk[1]["weight"] = 0.5;
  CHECK(error_of(format, {{"messages", talk}}).find("message 2: `weight` is 0.5") !=
        std::string::npos);
}

TEST_CASE("a role that the template passes over is an error that names it") {
  Json talk = kTalk;
  talk.insert(talk.begin() + 1, said("alien", "Zap"));
  const std::string error = error_of(format_with("qwen3"), {{"messages", talk}});
  CHECK(error.find("message 2 has the role \"alien\"") != std::string::npos);
  CHECK(error_of(format_with("chatml"), {{"messages", talk}}).empty());  // writes any role
  const PromptFormat prompt = format_with("qwen3");
  bool truncated = false;
  CHECK_THROWS_WITH_AS(read_prompt_row(prompt, {{"messages", talk}}, "rows.jsonl:7", &truncated),
                       doctest::Contains("\"alien\""), DataError);
}

TEST_CASE("rows that train nothing say why") {
  SftFormat format = format_with("chatml");
  CHECK(row_in(format, {{"messages", {kTalk[0]}}}).untrained ==
        "the assistant says nothing in it that is trained");
  CHECK(row_in(format, {{"input_ids", {1, 2}}, {"labels", {1, -100}}}).untrained ==
        "its labels train no token");
  format.conversation = ConversationMode::kTurns;
  CHECK(row_in(format, {{"messages", {kTalk[0]}}}).segments.size() == 1);
  format.max_length = 2;
  format.overlong = Overlong::kTruncate;
  for (const ConversationMode mode : {ConversationMode::kAuto, ConversationMode::kTurns}) {
    format.conversation = mode;
    CHECK(row_in(format, {{"messages", {kTalk[0], kTalk[1]}}}).untrained.starts_with("data.max"));
    CHECK(row_in(format, {{"prompt", {kTalk[0]}}, {"completion", {kTalk[1]}}})
              .untrained.starts_with("data.max"));
  }
}

TEST_CASE("conversations in other programs' formats are the same conversations") {
  SftFormat format = format_with("chatml");
  Json messages = kTalk;
  messages.insert(messages.begin(), said("system", "S"));
  const std::string want = whole_text(format, {{"messages", messages}});
  const Json sharegpt = {{"conversations",
                          {{{"from", "system"}, {"value", "S"}},
                           {{"from", "human"}, {"value", "Hi"}},
                           {{"from", "gpt"}, {"value", "Ho"}},
                           {{"from", "human"}, {"value", "He"}},
                           {{"from", "gpt"}, {"value", "Ha"}}}}};
  CHECK(whole_text(format, sharegpt) == want);
  const Json alpaca = {{"system", "S"},
                       {"history", Json::array({Json::array({"Hi", "Ho"})})},
                       {"instruction", "He"},
                       {"input", ""},
                       {"output", "Ha"}};
  CHECK(whole_text(format, alpaca) == want);
  CHECK(whole_text(format, {{"instruction", "He"}, {"input", "x"}, {"output", "Ha"}}) ==
        whole_text(format, {{"messages", {said("user", "He\nx"), said("assistant", "Ha")}}}));
  Json off = sharegpt;
  off["conversations"][2]["weight"] = 0;
  CHECK(trained(format, off) == "Ha<|im_end|>\n|");
  Json unknown = sharegpt;
  unknown["conversations"][1]["from"] = "alien";
  CHECK(error_of(format, unknown).find("message 2 is from \"alien\"") != std::string::npos);
  format.format = RowFormat::kSharegpt;
  CHECK(error_of(format, {{"messages", kTalk}}).find("needs `conversations`") != std::string::npos);

  format = format_with("chatml");
  format.system_prompt = "S";
  CHECK(whole_text(format, {{"messages", kTalk}}) == want);
  CHECK(whole_text(format, {{"messages", messages}}) == want);
  CHECK(whole_text(format, {{"prompt", {kTalk[0], kTalk[1], kTalk[2]}},
                            {"completion", {kTalk[3]}}}) == want);

  format.chat = nullptr;
  CHECK(whole_text(format, {{"instruction", "He"}, {"output", "Ha"}}) ==
        "Below is an instruction that describes a task. Write a response that appropriately "
        "completes the request.\n\n### Instruction:\nHe\n\n### Response:Ha");
}

TEST_CASE("prompts are text, messages or ids, and end before the answer that a format holds") {
  const PromptFormat format = format_with("chatml");
  bool truncated = false;
  const auto prompt = [&](const Json& row) {
    const auto read = read_prompt_row(format, row, "rows.jsonl:7", &truncated);
    return format.tokenizer->decode(read.value().tokens);
  };
  const std::string want = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
  CHECK(prompt({{"prompt", {kTalk[0]}}}) == want);
  CHECK(prompt({{"messages", {kTalk[0]}}}) == want);
  CHECK(prompt({{"instruction", "Hi"}, {"output", "Ho"}}) == want);
  CHECK(prompt({{"conversations",
                 {{{"from", "human"}, {"value", "Hi"}}, {{"from", "gpt"}, {"value", "Ho"}}}}}) ==
        want);
  // The answers are what rewards may compare with: the row keeps them.
  for (const Json& row :
       {Json{{"messages", {kTalk[0], kTalk[1]}}}, Json{{"prompt", {kTalk[0], kTalk[1]}}},
        Json{{"messages", {kTalk[0], kTalk[1], kTalk[3]}}, {"tools", Json::array()}}}) {
    CAPTURE(row.dump());
    CHECK(prompt(row) == want);
    const auto read = read_prompt_row(format, row, "rows.jsonl:7", &truncated);
    CHECK(*read->fields == row);
    CHECK(read->has_answer);
    CHECK(*read->messages == Json({kTalk[0]}));
  }
  CHECK(prompt({{"messages", {kTalk[0], kTalk[1], kTalk[2]}}})
            .ends_with("Ho<|im_end|>\n<|im_start|>user\nHe<|im_end|>\n<|im_start|>assistant\n"));
  CHECK_THROWS_WITH_AS(prompt({{"messages", {kTalk[1]}}}),
                       "rows.jsonl:7: `messages` has turns of the assistant alone, expected a turn "
                       "that they answer",
                       DataError);
  CHECK_FALSE(read_prompt_row(format, {{"prompt", "plain"}}, "f:1", &truncated)->messages);
  CHECK(prompt({{"prompt_ids", {1, 2}}}) == prompt({{"tokens", {1, 2}}}));
  CHECK(prompt({{"prompt", "plain"}}) == "plain");
  PromptFormat ids;
  ids.vocabulary = 10;
  for (const Json& row : {Json{{"prompt", "text"}}, Json{{"messages", kTalk}}})
    CHECK_THROWS_WITH_AS(read_prompt_row(ids, row, "rows.jsonl:7", &truncated),
                         doctest::Contains("rows.jsonl:7: text needs a tokenizer"), DataError);
  CHECK_THROWS_WITH_AS(read_prompt_row(ids, {{"question", "x"}}, "rows.jsonl:7", &truncated),
                       doctest::Contains("the row has [question]; expected prompt"), DataError);
}

TEST_CASE("tools may be a list or its JSON text") {
  const SftFormat format = format_with("qwen3");
  const Json tools = {{{"type", "function"}, {"function", {{"name", "f"}}}}};
  const Json row = {{"messages", {kTalk[0], kTalk[1]}}, {"tools", tools}};
  Json as_text = row;
  as_text["tools"] = tools.dump();
  CHECK(whole_text(format, as_text) == whole_text(format, row));
  CHECK(whole_text(format, row).find("\"f\"") != std::string::npos);
  as_text["tools"] = "";
  CHECK(whole_text(format, as_text).find("\"f\"") == std::string::npos);
  as_text["tools"] = "[oops";
  CHECK(error_of(format, as_text).starts_with("rows.jsonl:7: tools: not valid JSON"));
  as_text["tools"] = "{}";
  CHECK(error_of(format, as_text).find("tools: expected a list") != std::string::npos);
}

TEST_CASE("text gets the tokenizer's special tokens once, conversations none") {
  SftFormat format;
  format.tokenizer = Tokenizer::parse(R"({"model": {"type": "BPE", "unk_token": "u", "merges": [],
    "vocab": {"a": 0, "b": 1, "u": 2}},
    "added_tokens": [{"id": 3, "content": "<s>", "single_word": false, "lstrip": false,
      "rstrip": false, "normalized": false, "special": true}],
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
      "special_tokens": {"<s>": {"id": "<s>", "ids": [3], "tokens": ["<s>"]}}}})",
                                      "tokenizer");
  format.chat = std::make_shared<const ChatTemplate>(ChatTemplate::parse(
      "{% for m in messages %}<s>{{ m.content }}{% endfor %}", "chat", Json::object()));
  format.vocabulary = 4;
  format.eos = 2;
  using Ids = std::vector<int32_t>;
  const auto tokens = [&](const Json& row) { return row_in(format, row).segments[0].tokens; };
  CHECK(tokens({{"text", "ab"}}) == Ids{3, 0, 1, 2});
  CHECK(tokens({{"text", "<s>ab"}}) == Ids{3, 0, 1, 2});
  const SftRow row = row_in(format, {{"prompt", "a"}, {"completion", "b"}});
  CHECK(row.segments[0].tokens == Ids{3, 0, 1, 2});
  CHECK(row.segments[0].labels == Ids{-100, -100, 1, 2});
  CHECK(tokens({{"messages", {said("user", "a"), said("assistant", "b")}}}) == Ids{3, 0, 3, 1});
  bool truncated = false;
  const PromptFormat prompt = format;
  for (const char* text : {"ab", "<s>ab"})
    CHECK(read_prompt_row(prompt, {{"prompt", text}}, "f:1", &truncated)->tokens == Ids{3, 0, 1});
  CHECK(read_prompt_row(prompt, {{"prompt", {said("user", "a")}}}, "f:1", &truncated)->tokens ==
        Ids{3, 0});
}

TEST_CASE("an end token that the tokenizer puts behind texts is not put behind a prompt") {
  SftFormat format;
  format.tokenizer = Tokenizer::parse(R"({"model": {"type": "BPE", "unk_token": "u", "merges": [],
    "vocab": {"a": 0, "b": 1, "u": 2}},
    "added_tokens": [{"id": 3, "content": "</s>", "single_word": false, "lstrip": false,
      "rstrip": false, "normalized": false, "special": true}],
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
      "special_tokens": {"</s>": {"id": "</s>", "ids": [3], "tokens": ["</s>"]}}}})",
                                      "tokenizer");
  format.vocabulary = 4;
  format.eos = 3;
  using Ids = std::vector<int32_t>;
  bool truncated = false;
  const auto prompt = read_prompt_row(format, {{"prompt", "ab"}}, "f:1", &truncated);
  CHECK(prompt->tokens == Ids{0, 1});
  // A row that trains the completion has the same before it.
  const Ids row = row_in(format, {{"prompt", "ab"}, {"completion", "a"}}).segments[0].tokens;
  CHECK(row == Ids{0, 1, 0, 3});
  CHECK(row_in(format, {{"text", "ab"}}).segments[0].tokens == Ids{0, 1, 3});
}

TEST_CASE("a text of which max_length keeps a part gives the tokens that all of it gives") {
  SftFormat whole;
  whole.tokenizer = golden_tokenizer("qwen2");
  whole.chat = std::make_shared<const ChatTemplate>(golden_template("chatml"));
  whole.vocabulary = 1 << 20;
  whole.eos = 3;
  whole.max_length = INT64_MAX;
  std::string words;
  for (int i = 0; i < 300; ++i)
    words += "She said: don't stop at number " + std::to_string(i) + ", ";
  const Json rows[] = {{{"text", words}},
                       {{"prompt", "Say it."}, {"completion", words}},
                       {{"prompt", words}, {"completion", "Said."}},
                       {{"messages",
                         {{{"role", "user"}, {"content", "Hello"}},
                          {{"role", "assistant"}, {"content", words}},
                          {{"role", "user"}, {"content", words}},
                          {{"role", "assistant"}, {"content", "Bye."}}}}}};
  for (const Json& row : rows)
    for (const int64_t length : {5, 9, 40, 200, 2000}) {
      CAPTURE(row.begin().key());
      CAPTURE(length);
      bool cut = false, not_cut = false;
      const SftRow all = *read_sft_row(whole, row, "row", &not_cut);
      SftFormat format = whole;
      format.max_length = length;
      const SftRow some = *read_sft_row(format, row, "row", &cut);
      REQUIRE(all.segments.size() == 1);
      REQUIRE(some.segments.size() == 1);
      CHECK(cut);
      const auto beginning = [&](std::vector<int32_t> values) {
        values.resize(static_cast<size_t>(length));
        return values;
      };
      CHECK(some.segments[0].tokens == beginning(all.segments[0].tokens));
      CHECK(some.segments[0].labels == beginning(all.segments[0].labels));
      format.overlong = Overlong::kDrop;
      CHECK(!read_sft_row(format, row, "row", &cut));
    }
}

TEST_CASE("content of text parts is the joined text; other parts are refused") {
  SftFormat format;
  format.tokenizer = golden_tokenizer("qwen2");
  format.chat = std::make_shared<const ChatTemplate>(golden_template("chatml"));
  format.vocabulary = 1 << 20;
  format.eos = 3;
  const auto messages = [](const Json& asked, const Json& answered) {
    return Json{
        {"messages",
         {{{"role", "user"}, {"content", asked}}, {{"role", "assistant"}, {"content", answered}}}}};
  };
  const auto part = [](const char* text) { return Json{{"type", "text"}, {"text", text}}; };
  const data::Segment plain = row_in(format, messages("Is it? Yes?", "It is.")).segments[0];
  const data::Segment parts = row_in(format, messages(Json::array({part("Is it?"), part(" Yes?")}),
                                                      Json::array({part("It is.")})))
                                  .segments[0];
  CHECK(parts.tokens == plain.tokens);
  CHECK(parts.labels == plain.labels);
  const auto refused = [&](const char* type, const char* why) {
    const Json other = Json::array({{{"type", type}, {"url", "a"}}});
    return error_of(format, messages(other, "No.")).find(why) != std::string::npos;
  };
  CHECK(refused("image", "the row has 1 image, which this model does not see"));
  CHECK(refused("audio", "`messages` has a message with parts that are neither text nor images"));
}

TEST_CASE("a text prompt may be a message of the user, and what completes it the assistant's") {
  SftFormat format = format_with("chatml");
  format.eos = 0;
  const Json text{{"prompt", "2+2"}, {"completion", "4"}};
  const Json messages{{"messages", {said("user", "2+2"), said("assistant", "4")}}};
  CHECK(row_in(format, text).segments[0].tokens != row_in(format, messages).segments[0].tokens);
  format.prompts_as = PromptsAs::kUser;
  CHECK(row_in(format, text).segments[0].tokens == row_in(format, messages).segments[0].tokens);
  CHECK(trained(format, row_in(format, text)) == trained(format, row_in(format, messages)));
  // Other rows are what they were.
  SftFormat plain = format_with("chatml");
  plain.eos = 0;
  CHECK(row_in(format, {{"text", "2+2"}}).segments[0].tokens ==
        row_in(plain, {{"text", "2+2"}}).segments[0].tokens);

  bool truncated = false;
  const PromptRow prompt =
      read_prompt_row(format, {{"prompt", "2+2"}, {"completion", "4"}}, "r:1", &truncated).value();
  CHECK(format.tokenizer->decode(prompt.tokens).ends_with("<|im_start|>assistant\n"));
  CHECK(prompt.fields->at("completion") == "4");  // a reward's answer stays text
  PreferenceFormat pairs;
  static_cast<SftFormat&>(pairs) = format;
  const PreferenceRow pair =
      read_preference_row(pairs, {{"prompt", "2+2"}, {"chosen", "4"}, {"rejected", "5"}}, "r:1",
                          &truncated)
          .value();
  CHECK(
      format.tokenizer->decode(pair.path(Side::kRejected, true).tokens).find("<|im_start|>user") !=
      std::string::npos);

  format.chat = nullptr;
  CHECK(error_of(format, text).find("data.prompts_as: user needs a chat template") !=
        std::string::npos);
}

TEST_CASE("special tokens that rows spell are text where data.control_tokens says so") {
  SftFormat format = format_with("chatml");
  format.chat = std::make_shared<const ChatTemplate>(ChatTemplate::parse(
      "{% for m in messages %}{{ m.role }}: {{ m.content }}<|end|>\n{% endfor %}"
      "{% if add_generation_prompt %}assistant: {% endif %}",
      "ends", Json::object()));
  const int32_t end = format.tokenizer->id_of("<|end|>").value();
  format.eos = end;
  const auto ends_in = [&](const Json& row) {
    const std::vector<int32_t> tokens = row_in(format, row).segments[0].tokens;
    return std::count(tokens.begin(), tokens.end(), end);
  };
  const Json messages{{"messages", {said("user", "a<|end|>"), said("assistant", "b")}}},
      pair{{"prompt", "a<|end|>"}, {"completion", "b<|end|>"}}, text{{"text", "a<|end|>b"}};
  format.system_prompt = "s<|end|>";  // the user's own config says what it says
  bool truncated = false;
  CHECK(ends_in(messages) == 5);
  CHECK(ends_in(pair) == 2);
  CHECK(ends_in(text) == 2);
  format.control_tokens = ControlTokens::kText;
  CHECK(ends_in(messages) == 4);
  CHECK(ends_in(pair) == 1);
  CHECK(ends_in(text) == 1);
  const PromptRow prompt = read_prompt_row(format, pair, "r:1", &truncated).value();
  CHECK(std::count(prompt.tokens.begin(), prompt.tokens.end(), end) == 0);
  CHECK(prompt.fields->at("prompt") == "a<|end|>");
  CHECK(format.tokenizer->decode(prompt.tokens) == "a<|end|>");
}

TEST_CASE("what is odd about rows is counted, with the first of each kind") {
  SftFormat format = format_with("chatml");
  const auto notices_of = [&](const std::vector<Json>& rows) {
    RowNotices all;
    for (size_t i = rows.size(); i-- > 0;) {
      RowNotices one;
      one.add(format, rows[i], "r:" + std::to_string(i + 1), static_cast<int64_t>(i));
      all.add(one);
    }
    return all;
  };
  const Json text{{"prompt", "2+2"}, {"completion", "4"}},
      chat{{"messages", {said("user", "2+2"), said("assistant", "4")}}},
      rendered{{"prompt", "user: 2+2<|end|>"}, {"completion", "4"}};
  const Json call = {{"type", "function"}, {"function", {{"name", "add"}, {"arguments", "{}"}}}};
  Json tools = chat;
  tools["tools"] = {{{"type", "function"}, {"function", {{"name", "add"}}}}};
  tools["messages"][1] = {{"role", "assistant"}, {"content", ""}, {"tool_calls", {call}}};
  const RowNotices found = notices_of({chat, text, text, rendered, tools});
  CHECK(found.text_prompts.rows == 2);
  CHECK(found.text_prompts.where == "r:2");
  CHECK(found.about_text_prompts().find("data.prompts_as: user") != std::string::npos);
  CHECK(found.about_text_prompts().find("temper data convert --to messages") != std::string::npos);
  CHECK(found.control_tokens.rows == 1);
  CHECK(found.control_tokens.where == "r:4");
  CHECK(found.control_tokens.what == "<|end|>");
  CHECK(found.unwritten_tools.rows == 1);
  CHECK(found.unwritten_calls.rows == 1);
  CHECK(found.about_tools().find("r:5") != std::string::npos);
  CHECK(notices_of({chat}).about_tools().empty());
  // Where the prompt is the user's message, or there is no template, nothing is left out.
  format.prompts_as = PromptsAs::kUser;
  CHECK(notices_of({text}).text_prompts.rows == 0);
  format = format_with("chatml");
  format.chat = nullptr;
  CHECK(notices_of({text}).text_prompts.rows == 0);
}

TEST_CASE("columns name fields of objects by their path") {
  SftFormat format = format_with("chatml");
  format.columns = {{"prompt", "extra.question"}, {"completion", "reward_model.ground_truth"}};
  const Json row{{"extra", {{"question", "2+2"}}}, {"reward_model", {{"ground_truth", "4"}}}};
  SftFormat plain = format_with("chatml");
  CHECK(row_in(format, row).segments[0].tokens ==
        row_in(plain, {{"prompt", "2+2"}, {"completion", "4"}}).segments[0].tokens);
  format.columns = {{"prompt", "extra.answer"}};
  CHECK(error_of(format, row).find("data.columns maps `prompt` to `extra.answer`") !=
        std::string::npos);
}
