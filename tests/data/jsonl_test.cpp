// Files of rows: the stream and the file of random access agree, whatever the bytes.
#include "temper/data/read/jsonl.h"

#include <doctest/doctest.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "temper/base/error.h"
#include "temper/data/read/row_file.h"
#include "temper/data/rows/row_fields.h"

using namespace temper;
using namespace temper::data;

namespace {

struct TemporaryFile {
  std::string path;
  TemporaryFile(const std::string& ending, const std::string& bytes)
      : path(std::filesystem::temp_directory_path() /
             ("temper-jsonl-" + std::to_string(::getpid()) + ending)) {
    std::ofstream(path, std::ios::binary) << bytes;
  }
  ~TemporaryFile() { ::unlink(path.c_str()); }
};

// A row is its text or its error, each with its place in the file.
std::vector<std::string> streamed(const std::string& path) {
  std::vector<std::string> out;
  RowReader reader(path);
  Json row;
  while (true) {
    try {
      if (!reader.next(row)) return out;
      out.push_back(reader.where() + " " + dump_json(row));
    } catch (const DataError& e) {
      out.push_back(e.what());
    }
  }
}
std::vector<std::string> drawn(const std::string& path) {
  std::vector<std::string> out;
  const RowFile file(path);
  for (int64_t i = 0; i < file.size(); ++i) {
    try {
      out.push_back(file.where(i) + " " + dump_json(file.row(i)));
    } catch (const DataError& e) {
      out.push_back(e.what());
    }
  }
  return out;
}

std::string gzip(const std::string& text) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string zstd(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

}  // namespace

TEST_CASE(
    "a stream of rows and the file of random access agree on blank lines, line ends and errors") {
  const std::string text =
      "\xEF\xBB\xBF{\"a\": 1}\r\n\n \t\r\n\r\r\r\n{\"a\": 2}\r\r\r\n{\"a\": \r\r\n[3]\n{\"a\": "
      "\"\xFF\"}\n{\"a\": 4}";
  for (const auto& [ending, bytes] : {std::pair<std::string, std::string>{".jsonl", text},
                                      {".jsonl.gz", gzip(text)},
                                      {".jsonl.zst", zstd(text)}}) {
    CAPTURE(ending);
    const TemporaryFile file(ending, bytes);
    const std::vector<std::string> rows = drawn(file.path);
    CHECK(rows == streamed(file.path));
    REQUIRE(rows.size() == 6);
    CHECK(rows[0] == file.path + ":1 {\"a\":1}");
    CHECK(rows[1] == file.path + ":5 {\"a\":2}");
    CHECK(rows[2].starts_with(file.path + ":6: not valid JSON"));
    CHECK(rows[3].starts_with(file.path + ":7: found a list, expected a row"));
    CHECK(rows[4].starts_with(file.path + ":8: not valid JSON"));
    CHECK(rows[5] == file.path + ":9 {\"a\":4}");
  }
}

TEST_CASE("a first line that is a byte order mark alone is blank") {
  const TemporaryFile file(".jsonl", "\xEF\xBB\xBF \r\n\n{\"a\": 1}\n");
  CHECK(drawn(file.path) == std::vector<std::string>{file.path + ":3 {\"a\":1}"});
  CHECK(drawn(file.path) == streamed(file.path));
}

TEST_CASE("files put one behind the other keep no byte order mark within") {
  const std::string text = "\xEF\xBB\xBF{\"a\": 1}\n\xEF\xBB\xBF{\"a\": 2}\n";
  const TemporaryFile file(".jsonl", text);
  const RowFile rows(file.path);
  CHECK(rows.line(0) == "{\"a\": 1}");
  CHECK(rows.line(1) == "{\"a\": 2}");
  CHECK(drawn(file.path) == streamed(file.path));
}

TEST_CASE("files that are no JSON Lines say so in the first error") {
  const auto first_error = [](const std::string& bytes) {
    const TemporaryFile file(".jsonl", bytes);
    const std::vector<std::string> rows = drawn(file.path);
    CHECK(rows == streamed(file.path));
    return rows.at(0).substr(file.path.size());
  };
  CHECK(first_error("[\n  {\"a\": 1}\n]\n").starts_with(":1: found a list, expected a row"));
  for (const std::string& utf16 :
       {std::string("\xFF\xFE{\0}\0", 6), std::string("\xFE\xFF\0{\0}", 6),
        std::string("{\0}\0", 4), std::string("\0{\0}", 4)})
    CHECK(first_error(utf16).starts_with(":1: the file is UTF-16, expected UTF-8"));
}

TEST_CASE("compressed rows that are cut short or damaged end with the file's name") {
  const std::string text = "{\"a\": 1}\n";
  for (const auto& [ending, bytes] :
       {std::pair<std::string, std::string>{".jsonl.gz", gzip(text)}, {".jsonl.zst", zstd(text)}}) {
    CAPTURE(ending);
    for (const std::string& damaged :
         {bytes.substr(0, bytes.size() - 3), std::string("garbage"), bytes + "garbage"}) {
      const TemporaryFile file(ending, damaged);
      std::string problem = "no error";
      try {
        drawn(file.path);
      } catch (const DataError& e) {
        problem = e.what();
      }
      CHECK(problem.starts_with(file.path + ": "));
    }
  }
}

TEST_CASE("an id that would wrap around to another is refused") {
  const auto ids = [](const char* json) {
    return token_ids(parse_json(json, "list"), "labels", 10, "rows:1", -100);
  };
  CHECK(ids("[-100, 0, 9]") == std::vector<int32_t>{-100, 0, 9});
  for (const char* wrong : {"[10]", "[-1]", "[1.0]", "[18446744073709551516]", "[4294967297]"}) {
    CAPTURE(wrong);
    CHECK_THROWS_WITH_AS(ids(wrong), doctest::Contains("rows:1: `labels` holds"), DataError);
  }
}

TEST_CASE("rows are unpacked only where the disk keeps its reserve") {
  std::string text;
  for (int i = 0; i < 10000; ++i) text += "{\"a\": 1}\n";
  for (const auto& [ending, bytes] :
       {std::pair<std::string, std::string>{".jsonl.gz", gzip(text)}, {".jsonl.zst", zstd(text)}}) {
    CAPTURE(ending);
    const TemporaryFile file(ending, bytes);
    CHECK(RowFile(file.path).size() == 10000);
    CHECK_THROWS_WITH_AS(
        RowFile(file.path, false, {.reserve_bytes = INT64_MAX / 2}),
        doctest::Contains((file.path + ": its unpacked rows take more than 0 bytes, and ").c_str()),
        RunError);
    CHECK_THROWS_WITH_AS(RowFile(file.path, false, {.ratio = 10, .ratio_from_bytes = 1000}),
                         doctest::Contains((file.path + ": its " + std::to_string(bytes.size()) +
                                            " bytes unpack to more than 10 times as many")
                                               .c_str()),
                         DataError);
    CHECK(RowFile(file.path, false, {.ratio = 10, .ratio_from_bytes = 1 << 20}).size() == 10000);
  }
}

TEST_CASE("what is unpacked has no name that could be left behind") {
  const auto folder =
      std::filesystem::temp_directory_path() / ("temper-unpacked-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const TemporaryFile file(".jsonl.gz", gzip("{\"a\": 1}\n"));
  const char* before = std::getenv("TMPDIR");
  const std::string kept = before ? before : "";
  ::setenv("TMPDIR", folder.c_str(), 1);
  {
    const RowFile rows(file.path);
    CHECK(rows.size() == 1);
    CHECK(std::filesystem::is_empty(folder));
  }
  if (before)
    ::setenv("TMPDIR", kept.c_str(), 1);
  else
    ::unsetenv("TMPDIR");
  std::filesystem::remove_all(folder);
}

TEST_CASE("a row is read without the blank lines after it, however many") {
  const TemporaryFile file(".jsonl", "{\"a\": 1}\n" + std::string(200'000, '\n') + "{\"a\": 2}");
  const RowFile rows(file.path);
  REQUIRE(rows.size() == 2);
  CHECK(rows.line(0) == "{\"a\": 1}");
  CHECK(rows.where(1) == file.path + ":200002");
  const TemporaryFile wide(".jsonl", "{\"a\": \"" + std::string(200'000, 'x') + "\"}\n{}");
  CHECK(RowFile(wide.path).line(0).size() == 200'000 + 9);
  CHECK(RowFile(wide.path).line(1) == "{}");
}
