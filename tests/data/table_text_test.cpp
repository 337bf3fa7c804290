// Rows in .json lists, .csv and .tsv: the same rows as from a line of JSON each.
#include "temper/data/read/table_text.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "temper/base/error.h"
#include "temper/data/read/jsonl.h"
#include "temper/data/read/row_file.h"
#include "temper/data/rows/row_fields.h"
#include "tests/data/folder.h"

using namespace temper;
using namespace temper::data;

namespace {

// The rows as a stream and at random access, which must agree; or the first error.
std::vector<std::string> rows_of(const std::string& path) {
  std::vector<std::string> streamed, drawn;
  try {
    RowReader reader(path);
    for (Json row; reader.next(row);) streamed.push_back(dump_json(row));
    const RowFile file(path);
    for (int64_t i = 0; i < file.size(); ++i) drawn.push_back(dump_json(file.row(i)));
  } catch (const DataError& e) {
    return {e.what()};
  }
  CHECK(streamed == drawn);
  return streamed;
}

std::vector<std::string> rows_in(const std::string& name, const std::string& bytes) {
  const Folder folder;
  const std::string path = folder.write(name, bytes);
  std::vector<std::string> rows = rows_of(path);
  for (std::string& row : rows)
    for (size_t at; (at = row.find(path)) != std::string::npos;) row.replace(at, path.size(), name);
  return rows;
}

using Rows = std::vector<std::string>;

}  // namespace

TEST_CASE("a .json holds a list of rows, or a row a line") {
  CHECK(
      rows_in(
          "a.json",
          "\xEF\xBB\xBF [\n {\"a\": \"x, ] \\\" }\",\n \"b\": [1, {\"c\": 2}]}, {\"a\":2}\n]\n") ==
      Rows{R"({"a":"x, ] \" }","b":[1,{"c":2}]})", R"({"a":2})"});
  CHECK(rows_in("a.json", "{\"a\": 1}\n{\"a\": 2}\n") == Rows{R"({"a":1})", R"({"a":2})"});
  CHECK(rows_in("a.json", "[]") == Rows{"a.json: no rows"});
  CHECK(rows_in("a.json", "[{\"a\": 1},\n{\"a\": ") ==
        Rows{"a.json:2: the file ends within this row of its list"});
  CHECK(rows_in("a.json", "[{\"a\": 1}, 5]") ==
        Rows{"a.json: row 2: expected a JSON object, found number"});
  CHECK(rows_in("a.json", "[{\"a\": 1},, {\"a\": 1}]")[0].find("a row is missing") !=
        std::string::npos);
  CHECK(rows_in("a.json", "[{\"a\": 1}]\nx") == Rows{"a.json:2: more follows the list of rows"});
}

TEST_CASE("text behind a closing quote is an error, not a part of the cell") {
  const std::string error =
      "a.tsv:3: text follows the closing quote of a cell; a quote within a cell in quotes is "
      "doubled";
  CHECK(rows_in("a.tsv", "prompt\tanswer\n\"Who is there\tme\n\"Where is it\there\n") ==
        Rows{error});
  CHECK(rows_in("a.csv", "a,b\n\"Hi\" she said,ok\n")[0].starts_with("a.csv:2: text follows"));
}

TEST_CASE("a pipe is refused where a file would be read twice") {
  const Folder folder;
  const std::string path = folder.path + "/rows.json";
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  CHECK(rows_of(path)[0].find("expected a regular file") != std::string::npos);
}

TEST_CASE("cells of .csv and .tsv are text, quoted as RFC 4180 says, and empty ones null") {
  CHECK(
      rows_in("a.csv",
              "\xEF\xBB\xBFprompt,completion\r\n1+1=,2\r\n\"a \"\"b\"\", \nc\",\r\n\r\n,\"\"\n") ==
      Rows{R"({"prompt":"1+1=","completion":"2"})",
           R"({"prompt":"a \"b\", \nc","completion":null})",
           R"({"prompt":null,"completion":null})"});
  CHECK(rows_in("a.tsv", "a\tb\n1,2\t3") == Rows{R"({"a":"1,2","b":"3"})"});
  CHECK(rows_in("a.csv", "") == Rows{"a.csv: no rows"});
  CHECK(rows_in("a.csv", "a,b\n") == Rows{"a.csv: no rows"});
  CHECK(rows_in("a.csv", "a,b\n1,2\n1,2,3\n") ==
        Rows{"a.csv:3: found more than 2 cells, expected 2, as the first line of a.csv has"});
  CHECK(rows_in("a.csv", "a,b\n1,2\n1\n") ==
        Rows{"a.csv:3: found 1 cells, expected 2, as the first line of a.csv has"});
  CHECK(rows_in("a.csv", "a,b\n1,\"2\n") == Rows{"a.csv:2: a quote of this row is not closed"});
}

TEST_CASE("the first line of a .csv gives each column a name of its own") {
  // A byte order mark is no part of a name, quoted or not.
  CHECK(rows_in("a.csv", "\xEF\xBB\xBF\"a, \"\"b\"\"\",c\n1,2\n") ==
        Rows{R"({"a, \"b\"":"1","c":"2"})"});
  CHECK(rows_in("a.csv", "\xEF\xBC\x81,b\n1,2\n") == Rows{"{\"\xEF\xBC\x81\":\"1\",\"b\":\"2\"}"});
  CHECK(rows_in("a.csv", "a,b,c,b\n1,2,3,4\n") == Rows{"a.csv:1: two columns are named `b`"});
  CHECK(rows_in("a.csv", ",a\n1,2\n") == Rows{"a.csv:1: column 1 of 2 has no name"});
  CHECK(rows_in("a.csv", "\na\n1\n") == Rows{"a.csv:1: column 1 of 1 has no name"});
}

TEST_CASE("text that is not UTF-8 is an error, as it is in .jsonl") {
  const std::string latin = "a,b\n1,2\n3,caf\xE9\n";
  CHECK(rows_in("a.csv", latin) ==
        Rows{"a.csv:3: the text is not UTF-8 (byte 0xE9); convert it with iconv -f ENCODING -t "
             "UTF-8 a.csv > NEW_FILE, where ENCODING is often WINDOWS-1252"});
  CHECK(rows_in("a.tsv", "caf\xE9\tb\n1\t2\n")[0].starts_with("a.tsv:1: the text is not UTF-8"));
  // A character that a separator interrupts, or the file's end.
  CHECK(rows_in("a.csv", "a,b\n\xC3,\xA9\n")[0].find("(byte 0xC3)") != std::string::npos);
  CHECK(rows_in("a.csv", "a,b\n1,\xE2\x82")[0].find("(byte 0xE2)") != std::string::npos);
  const std::string utf16 =
      ": the text is UTF-16, expected UTF-8; convert it with iconv -f UTF-16 -t UTF-8 ";
  for (const std::string name : {"a.csv", "a.tsv", "a.json"})
    for (const std::string begin : {"\xFF\xFE", "\xFE\xFF", ""}) {
      const std::string bytes =
          begin + (begin == "\xFE\xFF" ? std::string("\0a\0\n", 4) : std::string("a\0\n\0", 4));
      CHECK(rows_in(name, bytes) == Rows{name + utf16 + name + " > NEW_FILE"});
    }
}

TEST_CASE("a row of many empty cells ends before it fills the memory") {
  const std::string commas(100'000, ',');
  CHECK(rows_in("a.csv", "a,b\n" + commas + "\"open") ==
        Rows{"a.csv:2: found more than 2 cells, expected 2, as the first line of a.csv has"});
  CHECK(rows_in("a.csv", commas) == Rows{"a.csv:1: more than 65536 columns"});
}

TEST_CASE("a conversation may be the JSON text of its messages") {
  Json row = {{"messages", R"( [{"role": "user", "content": "1"}])"}};
  rename_columns(row, {}, "a.csv:1");
  CHECK(row["messages"][0]["content"] == "1");
  row = {{"talk", R"([{"from": "human", "value": "1"}])"}};
  rename_columns(row, {{"conversations", "talk"}}, "a.csv:1");
  CHECK(row["conversations"][0]["value"] == "1");
  row = {{"messages", "[{"}};
  CHECK_THROWS_WITH_AS(rename_columns(row, {}, "a.csv:1"), doctest::Contains("a.csv:1: `messages`"),
                       DataError);
  row = {{"messages", "hello"}};  // what reads it says what is wrong
  rename_columns(row, {}, "a.csv:1");
  CHECK(row["messages"] == "hello");
}

TEST_CASE("a table's conversations are read from any column, and its labels from text") {
  const std::string csv =
      "prompt,chosen\n\"[{\"\"role\"\": \"\"user\"\", \"\"content\"\": \"\"Hi\"\"}]\",\"[1, 2]\"\n";
  CHECK(rows_in("a.csv", csv) ==
        Rows{R"({"prompt":[{"role":"user","content":"Hi"}],"chosen":"[1, 2]"})"});
  CHECK(rows_in("a.csv", "prompt\n\"[{'role': 'user', 'content': 'Hi'}]\"\n") ==
        Rows{"a.csv:2: `prompt` is a conversation as Python prints it; write it as JSON "
             "(json.dumps)"});
}

TEST_CASE("a row of a table is named by its line, whatever its cells hold") {
  const Folder folder;
  const std::string path =
      folder.write("a.csv", "a,b\n1,\"two\nlines\"\n\n3,4\n\"x\r\ny\n\",\n5,6\n");
  const RowFile file(path);
  RowReader reader(path);
  Json row;
  for (const int64_t line : {2, 5, 6, 9}) {
    REQUIRE(reader.next(row));
    CHECK(reader.where() == path + ":" + std::to_string(line));
  }
  CHECK(file.where(0) == path + ":2");
  CHECK(file.where(3) == path + ":9");
  CHECK(file.row(3) == Json{{"a", "5"}, {"b", "6"}});
}
