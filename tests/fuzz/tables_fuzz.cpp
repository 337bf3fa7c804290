// Any bytes as .csv, .tsv, .json, .parquet or .tfrecord by the first byte: rows are read by number
// as they are read in order, or the file is a DataError that names it. Seeds:
// tests/fuzz/seeds/tables.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "temper/base/error.h"
#include "temper/data/read/jsonl.h"
#include "temper/data/read/row_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace temper;
  if (size == 0) return 0;
  static const std::string base =
      std::filesystem::temp_directory_path() / ("temper-fuzz-tables-" + std::to_string(::getpid()));
  static const std::string paths[] = {base + ".csv", base + ".tsv", base + ".json",
                                      base + ".parquet", base + ".tfrecord"};
  const std::string& path = paths[data[0] % 5];
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(data) + 1, static_cast<std::streamsize>(size - 1));
  try {
    const data::RowFile file(path);
    data::RowReader reader(path);
    for (int64_t i = 0; i < file.size(); ++i) {
      Json row, streamed;
      std::string problem, problem_streamed;
      try {
        row = file.row(i);
      } catch (const DataError& e) {
        problem = e.what();
      }
      try {
        if (!reader.next(streamed)) std::abort();
      } catch (const DataError& e) {
        problem_streamed = e.what();
      }
      if (problem != problem_streamed || row != streamed) std::abort();
    }
  } catch (const DataError& e) {
    if (!std::string_view(e.what()).starts_with(path)) std::abort();
  }
  ::unlink(path.c_str());
  return 0;
}
