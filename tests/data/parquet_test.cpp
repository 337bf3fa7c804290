#include "temper/data/read/parquet.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/data/read/jsonl.h"
#include "temper/data/read/row_file.h"
#include "tests/golden.h"

using namespace temper;
using namespace temper::data;

namespace {

std::string golden(const std::string& name) { return golden_path("parquet/" + name); }

bool has_plugin() {
  if (arrow_version() == nullptr) MESSAGE("skipped: this build has no reader of Parquet");
  return arrow_version() != nullptr;
}

std::string problem(const std::string& path) {
  try {
    RowFile file(path);
  } catch (const DataError& e) {
    return e.what();
  }
  return "no error";
}

// What is wrong with a file of these bytes, less its name.
std::string problem_of_bytes(const std::string& bytes) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("temper-" + std::to_string(::getpid()) + ".parquet");
  std::ofstream(path, std::ios::binary) << bytes;
  const std::string what = problem(path);
  std::filesystem::remove(path);
  return what.starts_with(path.string()) ? what.substr(path.string().size()) : what;
}

}  // namespace

TEST_CASE("rows of Parquet are those of the same rows as JSON lines") {
  if (!has_plugin()) return;
  for (const std::string name : {"messages", "input_ids", "types", "images", "bytes"}) {
    CAPTURE(name);
    const RowFile rows(golden(name + ".parquet")), expected(golden(name + ".jsonl"));
    REQUIRE(rows.size() == expected.size());
    for (int64_t i = 0; i < rows.size(); ++i) CHECK(rows.row(i).dump() == expected.row(i).dump());
    CHECK(rows.where(4 % rows.size()) ==
          golden(name + ".parquet") + ": row " + std::to_string(4 % rows.size() + 1));
  }
}

TEST_CASE("Parquet is streamed as lines are") {
  if (!has_plugin()) return;
  RowReader rows(golden("input_ids.parquet")), expected(golden("input_ids.jsonl"));
  Json row, other;
  int count = 0;
  while (rows.next(row)) {
    REQUIRE(expected.next(other));
    CHECK(row.dump() == other.dump());
    CHECK(rows.where() == golden("input_ids.parquet") + ": row " + std::to_string(++count));
  }
  CHECK(count == 40);
}

TEST_CASE("a damaged Parquet file is an error that names it") {
  if (!has_plugin()) return;
  const std::string bytes = read_file(golden("messages.parquet"));
  const std::string garbage = problem_of_bytes(std::string(4096, 'x'));
  CHECK_MESSAGE(garbage.starts_with(": Parquet magic bytes not found"), garbage);
  CHECK(problem_of_bytes("").starts_with(": "));
  for (size_t size = 1; size < bytes.size(); size += 97) {
    const std::string truncated = problem_of_bytes(bytes.substr(0, size));
    CHECK_MESSAGE(truncated.starts_with(": "), truncated);
  }
  // The pages lie before the footer, which stays whole here.
  std::string overwritten = bytes;
  overwritten.replace(4, 600, 600, '\xff');
  const std::string page = problem_of_bytes(overwritten);
  CHECK_MESSAGE(page.starts_with(": "), page);
}

TEST_CASE("what JSON cannot say is refused by column") {
  if (!has_plugin()) return;
  CHECK(problem(golden("decimals.parquet")) ==
        golden("decimals.parquet") +
            ": column price holds decimal128(2, 1), which JSON has no value for; drop the column "
            "or write it as text");
  CHECK(problem(golden("keys.parquet")).find(": column meta holds map<int32, string") !=
        std::string::npos);
  CHECK(problem(golden("late.parquet")) ==
        golden("late.parquet") + ":2: a date outside of the years 0 to 9999");
}

TEST_CASE("a Parquet file that is not there") {
  CHECK(problem("nowhere.parquet") == "nowhere.parquet: cannot open: No such file or directory");
  CHECK(problem(golden("")) != "no error");
}
