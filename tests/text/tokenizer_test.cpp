// Ids and texts of small tokenizers of every kind, and of two whole ones, against those of Hugging
// Face's tokenizers. Goldens: tests/golden/make_tokenizer_goldens.py.
#include "temper/text/tokenizer/tokenizer.h"

#include <doctest/doctest.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/base/json.h"
#include "tests/text/golden.h"

using namespace temper;

namespace {

std::string streamed(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, bool skip) {
  StreamDecoder decoder(tokenizer, skip);
  std::string text;
  for (const int32_t id : ids) text += decoder.push(id);
  return text + decoder.finish();
}

void check_goldens(const Tokenizer& tokenizer, const Json& rows) {
  const Json texts = golden_tokenizer_file("texts");
  REQUIRE(rows.at("ids").size() == texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto text = texts[i].get<std::string>();
    const auto ids = rows.at("ids")[i].get<std::vector<int32_t>>();
    CAPTURE(text);
    CHECK(tokenizer.encode(text) == ids);
    const Json& special = rows.at("special")[i];
    CHECK(tokenizer.encode(text, true) ==
          (special.is_null() ? ids : special.get<std::vector<int32_t>>()));
    for (const bool skip : {false, true}) {
      const std::string back = rows.at(skip ? "skipped" : "decoded").value(std::to_string(i), text);
      CHECK(tokenizer.decode(ids, skip) == back);
      CHECK(streamed(tokenizer, ids, skip) == back);
    }
  }
  for (const Json& stream : rows.at("streams")) {
    const auto ids = stream.at("ids").get<std::vector<int32_t>>();
    for (const bool skip : {false, true}) {
      const auto text = stream.at(skip ? "skipped" : "text").get<std::string>();
      CHECK(tokenizer.decode(ids, skip) == text);
      CHECK(streamed(tokenizer, ids, skip) == text);
    }
  }
}

// The standard output of a command; empty when it fails.
std::string output_of(const std::string& command) {
  std::string out;
  FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) return out;
  char buffer[1 << 16];
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) out.append(buffer, n);
  return pclose(pipe) == 0 ? out : std::string();
}

std::shared_ptr<const Tokenizer> qwen2() {
  const std::string path = source_path("../shared/data/tokenizers/qwen2/tokenizer.json.gz");
  if (!std::filesystem::exists(path)) return nullptr;
  const std::string json = output_of("gzip -dc '" + path + "'");
  return json.empty() ? nullptr : Tokenizer::parse(json, path);
}

std::string parse_error(const std::string& json) {
  try {
    Tokenizer::parse(json, "t.json");
  } catch (const DataError& e) {
    return e.what();
  }
  return "no error";
}

// A tokenizer.json around a model of three tokens.
std::string small_json(const std::string& members, const std::string& model = "") {
  return R"({"version":"1.0",)" + members +
         R"("model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"])" + model + "}}";
}

}  // namespace

TEST_CASE("goldens of every kind of tokenizer") {
  for (const char* name :
       {"llama3", "qwen2", "gpt2", "gemma", "llama2_legacy", "metaspace_first", "metaspace_always",
        "metaspace_never", "folding", "split_removed", "split_isolated", "split_mergedwithprevious",
        "split_mergedwithnext", "split_contiguous"}) {
    CAPTURE(name);
    check_goldens(*golden_tokenizer(name), golden_tokenizer_file(name));
  }
}

TEST_CASE("goldens of Qwen2's tokenizer") {
  const auto tokenizer = qwen2();
  if (!tokenizer) {
    MESSAGE("skipped: ../shared/data/tokenizers/qwen2/tokenizer.json.gz is absent, or gzip is");
    return;
  }
  check_goldens(*tokenizer, golden_tokenizer_file("qwen2_full"));
  CHECK(tokenizer->id_of("<|im_start|>") == 151644);
  CHECK(tokenizer->id_of("Ġthe") == 279);
  CHECK(tokenizer->token_of(279) == "Ġthe");
  CHECK(tokenizer->is_special(151645));
  CHECK(!tokenizer->is_special(151657));  // <tool_call>: added, not special
}

TEST_CASE("goldens of the benchmark's tokenizer") {
  const std::string path = source_path("../shared/bench/tokenizer.json");
  if (!std::filesystem::exists(path)) {
    MESSAGE("skipped: ../shared/bench/tokenizer.json is absent");
    return;
  }
  const auto tokenizer = Tokenizer::load(path);
  check_goldens(*tokenizer, golden_tokenizer_file("bench_full"));
  CHECK(tokenizer->vocab_size() == 8192);
}

TEST_CASE("lookups") {
  const auto tokenizer = Tokenizer::parse(
      small_json(R"("added_tokens":[{"id":9,"content":"<x>","single_word":false,"lstrip":false,)"
                 R"("rstrip":false,"normalized":false,"special":true}],)"),
      "t.json");
  CHECK(tokenizer->id_of("ab") == 2);
  CHECK(tokenizer->id_of("<x>") == 3);  // the next free id, whatever the file says
  CHECK(!tokenizer->id_of("c"));
  CHECK(tokenizer->token_of(1) == "b");
  CHECK(tokenizer->token_of(3) == "<x>");
  CHECK(tokenizer->token_of(4).empty());
  CHECK(tokenizer->token_of(-1).empty());
  CHECK(tokenizer->is_special(3));
  CHECK(!tokenizer->is_special(0));
  CHECK(tokenizer->vocab_size() == 4);
  CHECK(tokenizer->encode("ab<x>b") == std::vector<int32_t>{2, 3, 1});
  CHECK(tokenizer->decode(std::vector<int32_t>{2, 77, -5, 3, 1}, true) == "ab b");
}

TEST_CASE("invalid UTF-8 counts as U+FFFD, one for each maximal broken part") {
  const auto tokenizer = golden_tokenizer("llama3");
  const std::string bad = "\xEF\xBF\xBD";
  const auto same = [&](const std::string& broken, const std::string& repaired) {
    CHECK(tokenizer->encode(broken) == tokenizer->encode(repaired));
  };
  same(
      "a\xFF"
      "b",
      "a" + bad + "b");
  same("\xE4\xBD", bad);  // cut off
  same("\xE4\xBDx", bad + "x");
  same("\xED\xA0\x80", bad + bad + bad);            // a surrogate
  same("\xC0\x80", bad + bad);                      // overlong
  same("\xF4\x90\x80\x80", bad + bad + bad + bad);  // beyond U+10FFFF
}

TEST_CASE("a stream gives characters only when they are whole") {
  for (const char* name : {"llama3", "llama2_legacy"}) {
    const auto tokenizer = golden_tokenizer(name);
    const std::string text = "x 😀 y";
    const auto ids = tokenizer->encode(text);
    StreamDecoder decoder(*tokenizer);
    std::string so_far;
    for (const int32_t id : ids) {
      so_far += decoder.push(id);
      CHECK(text.starts_with(so_far));
      // Ends with a whole character: the next byte of the text begins one.
      const char next = so_far.size() < text.size() ? text[so_far.size()] : 'x';
      CHECK((static_cast<unsigned char>(next) & 0xC0) != 0x80);
    }
    CHECK(so_far + decoder.finish() == text);
  }
}

TEST_CASE("threads share a tokenizer, and a thread's cache keeps tokenizers apart") {
  const auto one = golden_tokenizer("llama3"), other = golden_tokenizer("gpt2");
  const Json texts = golden_tokenizer_file("texts");
  const auto all = [&] {
    std::vector<std::vector<int32_t>> out;
    for (const Json& text : texts) {
      out.push_back(one->encode(text.get<std::string>()));
      out.push_back(other->encode(text.get<std::string>()));
    }
    return out;
  };
  const auto expected = all();
  std::vector<std::vector<std::vector<int32_t>>> found(4);
  std::vector<std::thread> threads;
  for (auto& slot : found) threads.emplace_back([&] { slot = all(); });
  for (auto& thread : threads) thread.join();
  for (const auto& slot : found) CHECK(slot == expected);
}

TEST_CASE("what is not supported is refused by name and place") {
  CHECK(parse_error(R"({"model":{"type":"WordPiece","vocab":{"a":0}}})") ==
        "t.json: model: model of type \"WordPiece\" is not supported");
  CHECK(parse_error(R"({"model":{"type":"Unigram","vocab":[["a",0.5],["b",[{}]]]}})") ==
        "t.json: model: model of type \"Unigram\" is not supported");
  CHECK(
      parse_error(small_json(
          R"("normalizer":{"type":"Sequence","normalizers":[{"type":"BertNormalizer"}]},)")) ==
      "t.json: normalizer.normalizers[0]: normalizer of type \"BertNormalizer\" is not supported");
  CHECK(parse_error(small_json(R"("pre_tokenizer":{"type":"UnicodeScripts"},)")) ==
        "t.json: pre_tokenizer: pre_tokenizer of type \"UnicodeScripts\" is not supported");
  CHECK(parse_error(small_json(R"("decoder":{"type":"CTC"},)")) ==
        "t.json: decoder: decoder of type \"CTC\" is not supported");
  CHECK(parse_error(small_json(R"("post_processor":{"type":"RobertaProcessing"},)")) ==
        "t.json: post_processor: post_processor of type \"RobertaProcessing\" is not supported");
  CHECK(parse_error(small_json("", R"(,"end_of_word_suffix":"</w>")")) ==
        "t.json: model.end_of_word_suffix: is not supported");
  CHECK(parse_error(small_json("", R"(,"dropout":0.1)")) ==
        "t.json: model.dropout: is not supported");
}

TEST_CASE("what is broken is an error that says where") {
  const auto has = [](const std::string& message, const char* part) {
    CAPTURE(message);
    CHECK(message.find(part) != std::string::npos);
  };
  has(parse_error("{\"model\":"), "t.json: not valid JSON: ");
  has(parse_error("[]"), "t.json: an object expected");
  has(parse_error("{}"), "\"model\" is missing");
  has(parse_error(R"({"model":{"vocab":{"a":-1}}})"), "model.vocab[\"a\"]: an id expected");
  has(parse_error(R"({"model":{"vocab":{"a":99999999}}})"), "model.vocab[\"a\"]: id 99999999");
  has(parse_error(R"({"model":{"vocab":{"a":{}}}})"), "model.vocab[\"a\"]");
  has(parse_error(R"({"model":{"vocab":{"a":0},"merges":["a"]}})"), "model.merges[0]: two tokens");
  has(parse_error(R"({"model":{"vocab":{"a":0},"merges":[["a","a","a"]]}})"),
      "model.merges[0]: two");
  has(parse_error(R"({"model":{"vocab":{"a":0},"merges":[7]}})"), "model.merges[0]: two tokens");
  has(parse_error(R"({"model":{"vocab":{"a":0},"merges":["a c"]}})"),
      "model.merges[0]: \"c\" is not");
  has(parse_error(R"({"model":{"vocab":{"a":0}}})"), "\"merges\" is missing");
  has(parse_error(small_json(R"("added_tokens":[{"content":"x"}],)")),
      "added_tokens[0]: \"single_word\"");
  has(parse_error(small_json(
          R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":"(a"},"behavior":"Removed","invert":false},)")),
      "pre_tokenizer.pattern.Regex: regular expression \"(a\"");
  has(parse_error(std::string(100, '[') + std::string(100, ']')), "nested deeper");
  CHECK_THROWS_AS(Tokenizer::load("no/such/file.json"), DataError);
  // A text that each step of the normalizer makes a thousand times longer.
  const std::string step = R"({"type": "Replace", "pattern": {"String": "a"}, "content": ")" +
                           std::string(1000, 'a') + R"("})";
  const auto growing = Tokenizer::parse(
      R"({"normalizer": {"type": "Sequence", "normalizers": [)" + step + "," + step + "," + step +
          R"(]}, "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}})",
      "t.json");
  CHECK_THROWS_WITH_AS(growing->encode("a"), doctest::Contains("a replacement makes more than"),
                       DataError);
  CHECK(growing->encode("b").empty());
}

TEST_CASE("a text says whether it spells a special token, which quotes make text") {
  for (const char* name : {"qwen2", "llama3", "gemma", "llama2_legacy"}) {
    CAPTURE(name);
    const auto tokenizer = golden_tokenizer(name);
    std::string spelled;
    for (int32_t id = 0; id < tokenizer->vocab_size() && spelled.empty(); ++id)
      if (tokenizer->is_special(id)) spelled = tokenizer->token_of(id);
    REQUIRE_FALSE(spelled.empty());
    const std::string text = "one " + spelled + " two" + spelled + spelled;
    CHECK(tokenizer->control_token_in(text) == tokenizer->id_of(spelled));
    CHECK_FALSE(tokenizer->control_token_in("one two"));
    const auto special = [&](const std::vector<int32_t>& ids) {
      return std::count_if(ids.begin(), ids.end(),
                           [&](int32_t id) { return tokenizer->is_special(id); });
    };
    CHECK(special(tokenizer->encode(text)) == 3);
    const std::string quoted = tokenizer->quoted(text);
    CHECK(Tokenizer::unquoted(quoted) == text);
    const auto ids = tokenizer->encode_first(quoted, SIZE_MAX, Tokenizer::Quotes::kMarked);
    CHECK(special(ids) == 0);
    if (tokenizer->decode(tokenizer->encode(text)) == text) CHECK(tokenizer->decode(ids) == text);
    // A token of a template beside it is one.
    CHECK(special(tokenizer->encode_first(spelled + quoted, SIZE_MAX,
                                          Tokenizer::Quotes::kMarked)) == 1);
    CHECK(tokenizer->quoted("one two") == "one two");
  }
  // A text that has the mark itself quotes nothing by it.
  const auto tokenizer = golden_tokenizer("qwen2");
  CHECK(tokenizer->quoted("\uFDD0<|end|>") == "\uFFFD\uFDD0<|end|>");
}
