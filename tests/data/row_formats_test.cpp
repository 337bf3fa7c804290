#include "temper/data/rows/row_formats.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/data/read/column_types.h"
#include "temper/data/read/compress.h"
#include "temper/data/read/jsonl.h"
#include "tests/data/folder.h"

using namespace temper;
using namespace temper::data;

namespace {

Json converted(const char* row, WrittenFormat format) {
  return convert_row(parse_json(row, "r:1"), format, "r:1");
}

std::string problem_of(const char* row, WrittenFormat format) {
  try {
    converted(row, format);
  } catch (const DataError& e) {
    return e.what();
  }
  return "no error";
}

constexpr const char* kChat =
    R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":"q"},)"
    R"({"role":"assistant","content":"a"},{"role":"user","content":"r"},)"
    R"({"role":"assistant","content":"b","weight":0}],"id":7})";

}  // namespace

TEST_CASE("conversations in every format, and back") {
  using enum WrittenFormat;
  CHECK(dump_json(converted(kChat, kMessages)) == kChat);
  const Json sharegpt = converted(kChat, kSharegpt);
  CHECK(dump_json(sharegpt) ==
        R"({"system":"s","conversations":[{"from":"human","value":"q"},{"from":"gpt","value":"a"},)"
        R"({"from":"human","value":"r"},{"from":"gpt","value":"b","weight":0}],"id":7})");
  CHECK(convert_row(sharegpt, kMessages, "r:1") == parse_json(kChat, "r:1"));
  const Json alpaca = converted(kChat, kAlpaca);
  CHECK(dump_json(alpaca) ==
        R"({"instruction":"r","input":"","output":"b","system":"s","history":[["q","a"]],"id":7})");
  Json chat = parse_json(kChat, "r:1");
  chat["messages"][4].erase("weight");  // which Alpaca has no place for
  CHECK(convert_row(alpaca, kMessages, "r:1") == chat);
  const Json prompt = converted(kChat, kPrompt);
  CHECK(prompt["prompt"].size() == 4);
  CHECK(prompt["completion"].size() == 1);
  CHECK(convert_row(prompt, kMessages, "r:1") == parse_json(kChat, "r:1"));
}

TEST_CASE("prompts and completions of text are what the user asks and the assistant answers") {
  using enum WrittenFormat;
  const char* const row = R"({"prompt":"q","completion":"a","answer":"4"})";
  CHECK(
      dump_json(converted(row, kMessages)) ==
      R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}],"answer":"4"})");
  CHECK(dump_json(converted(row, kAlpaca)) ==
        R"({"instruction":"q","input":"","output":"a","answer":"4"})");
  CHECK(dump_json(converted(R"({"prompt":"q"})", kSharegpt)) ==
        R"({"conversations":[{"from":"human","value":"q"}]})");
  CHECK(dump_json(converted(row, kPrompt)) == row);  // the format already
}

TEST_CASE("what a format cannot hold is an error that names the row") {
  using enum WrittenFormat;
  CHECK(problem_of(R"({"messages":[{"role":"assistant","content":"a"}]})", kAlpaca) ==
        "r:1: an Alpaca row holds turns of user and assistant, found message 1 of \"assistant\"");
  CHECK(problem_of(R"({"messages":[{"role":"user","content":[1]}]})", kAlpaca)
            .starts_with("r:1: a message of \"user\" has no text"));
  CHECK(problem_of(R"({"text":"t"})", kMessages).starts_with("r:1: the row has [text]; expected"));
  CHECK(problem_of(R"({"messages":"x"})", kSharegpt).starts_with("r:1: `messages` must be a list"));
  CHECK(problem_of(R"({"messages":[3]})", kSharegpt).starts_with("r:1: a message is 3"));
  CHECK(problem_of(R"({"conversations":[{"from":"bird","value":"x"}]})", kMessages)
            .find("\"bird\"") != std::string::npos);
  CHECK(problem_of(R"({"prompt":"q","conversation":1,"input":"z"})", kAlpaca) ==
        "r:1: the row has `input` already, which the format writes");
}

TEST_CASE("what is compressed as it is written reads back") {
  const Folder folder;
  std::string rows;
  for (int i = 0; i < 20000; ++i) rows += "{\"n\":" + std::to_string(i * 7919) + "}\n";
  for (const char* name : {"a.jsonl.gz", "a.jsonl.zst"}) {
    const std::unique_ptr<Compressor> compressor = Compressor::for_path(name);
    REQUIRE(compressor);
    std::string packed;
    for (size_t at = 0; at < rows.size(); at += 1000)
      packed += compressor->add(std::string_view(rows).substr(at, 1000));
    packed += compressor->end();
    CHECK(packed.size() < rows.size() / 2);
    LineReader lines(folder.write(name, packed));
    std::string line, read;
    while (lines.next(line)) read += line + "\n";
    CHECK(read == rows);
  }
  CHECK(Compressor::for_path("a.jsonl") == nullptr);
}

TEST_CASE("the types of a table's columns") {
  const auto types_of = [](const std::vector<const char*>& rows) {
    ColumnType type;
    for (size_t i = 0; i < rows.size(); ++i)
      type.add(parse_json(rows[i], "r"), "", "r:" + std::to_string(i + 1));
    return dump_json(type.to_json());
  };
  CHECK(types_of({R"({"a":1,"b":"x","c":true})", R"({"a":2.5,"d":null})"}) ==
        R"({"a":"double","b":"string","c":"bool","d":"string"})");
  CHECK(types_of({R"({"m":[{"role":"u"}],"n":[]})", R"({"m":[{"role":"u","k":3}],"n":[[1]]})"}) ==
        R"({"m":[{"role":"string","k":"int64"}],"n":[["int64"]]})");
  const auto problem = [&](const char* row) {
    try {
      types_of({R"({"a":{"b":[1]}})", row});
    } catch (const DataError& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  CHECK(problem(R"({"a":{"b":["x"]}})")
            .starts_with("r:2: `a.b[]` is text, and in earlier rows a whole number; "));
  CHECK(problem(R"({"a":3})").starts_with("r:2: `a` is a whole number, and in earlier rows an "));
  CHECK(problem(R"({"a":{"b":[18446744073709551615]}})").find("64 bits") != std::string::npos);
}
